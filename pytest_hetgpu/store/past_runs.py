"""Reads the outcomes of the newest runs in a history, cell by cell."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import database
from pytest_hetgpu.store.database import Database, Row
from pytest_hetgpu.store.run_summary import RunSummary

if TYPE_CHECKING:
    from pytest_hetgpu.store.history_place import HistoryPlace

LATEST = 1e12
"""Seconds since 1970 that no run reaches."""
_DIGEST = 12
_DIGESTS = re.compile(rf"\b([0-9a-f]{{{_DIGEST}}})[0-9a-f]{{{64 - _DIGEST}}}\b")
NEWEST = (
    "(SELECT number FROM run WHERE started <= :until AND id <> :without ORDER BY started DESC, id DESC LIMIT :last)"
)
_USED = f"(SELECT setting FROM outcome WHERE run IN {NEWEST})"  # noqa: S608 - text of ours


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run: its id, its start in seconds since 1970, and what all of its cells share, by name.

    `basis` are the inputs of its verdicts, empty if it was stored by an earlier version.
    """

    id: str
    started: float
    shared: Mapping[str, str] = field(default_factory=dict)
    basis: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""


@dataclass(frozen=True, slots=True)
class PastOutcome:
    """The outcome of a cell in one run; `facts` are its versions and settings, `nodes` those of its nodes."""

    kind: Kind
    verdict: Verdict
    signature: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    issue: str = ""

    @property
    def ran(self) -> bool:
        """Return whether the cell ran."""
        return self.verdict is not Verdict.NOT_RUN

    @property
    def good(self) -> bool:
        """Return whether the cell did its job as fast as it should."""
        return self.kind is Kind.PASSED

    @property
    def name(self) -> str:
        """Return the name that equal outcomes share: `ok`, or the kind with the signature."""
        return "ok" if self.good else f"{self.kind.value.replace('_', ' ')} {self.signature}".strip()


@dataclass(frozen=True, slots=True)
class PastCell:
    """A cell: the place of its runs (`RunSummary.site`), its matrix, its id, and its axes."""

    site: str
    matrix: str
    scenario: str
    axes: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class PastRuns:
    """The newest runs of a history, the newest last, and the outcome of each cell in each of them."""

    runs: tuple[PastRun, ...]
    cells: Mapping[PastCell, tuple[PastOutcome | None, ...]] = field(default_factory=dict)


def past_runs(place: HistoryPlace, last: int, until: float = LATEST, without: str = "") -> PastRuns:
    """Read the newest `last` runs that started by `until`, without the run of that id.

    Raises HistoryError if the history is missing or cannot be read.
    """
    which: dict[str, object] = {"last": last, "until": until, "without": without}
    with database.connect(place) as db:
        rows = list(db.rows(f"SELECT * FROM run WHERE number IN {NEWEST} ORDER BY started, id", **which))  # noqa: S608
        files: dict[int, dict[str, str]] = {}
        for row in db.rows("SELECT run, name, sha256 FROM matrix"):
            files.setdefault(row["run"], {})[f"matrix {row['name']}"] = row["sha256"][:_DIGEST]
        runs = tuple(_past_run(row, files.get(row["number"], {})) for row in rows)
        places = {row["number"]: (place, row["site"]) for place, row in enumerate(rows)}
        return PastRuns(runs, _cells(db, places, which))


def _past_run(row: Row, matrices: Mapping[str, str]) -> PastRun:
    shared = {**matrices, "host of pytest": row["machine"], "pytest-hetgpu": row["package"]}
    basis = {name: _DIGESTS.sub(r"\1", text) for name, text in json.loads(row["basis"]).items() if name not in shared}
    return PastRun(row["id"], row["started"], shared, basis, row["folder"])


def _cells(
    db: Database, places: Mapping[int, tuple[int, str]], which: Mapping[str, object]
) -> Mapping[PastCell, tuple[PastOutcome | None, ...]]:
    """Read the outcomes of each cell; `places` are the place of each run, and its site."""
    identities = {
        row["id"]: (row["matrix"], row["scenario"], json.loads(row["axes"]))
        for row in db.rows("SELECT id, matrix, scenario, axes FROM identity ORDER BY id")
    }
    settings = {
        row["id"]: (_facts(json.loads(row["facts"]), row["stack"], row["tool"]), json.loads(row["nodes"]))
        for row in db.rows(f"SELECT * FROM setting WHERE id IN {_USED}", **which)  # noqa: S608 - text of ours
    }
    # Nearly all outcomes of a cell are equal to the one before.
    known: dict[tuple[object, ...], PastOutcome] = {}
    found: dict[PastCell, list[PastOutcome | None]] = {}
    cells: dict[tuple[str, int], list[PastOutcome | None]] = {}
    query = (
        f"SELECT run, identity, setting, kind, verdict, signature, issue FROM outcome WHERE run IN {NEWEST} ORDER BY id"  # noqa: S608
    )
    for run, identity, setting, kind, verdict, signature, issue in db.tuples(query, **which):
        place, site = places[run]
        outcomes = cells.get((site, identity))
        if outcomes is None:
            one = PastCell(site, *identities[identity])
            outcomes = cells[site, identity] = found.setdefault(one, [None] * len(places))
        key = (setting, kind, verdict, signature, issue)
        if key not in known:
            known[key] = PastOutcome(Kind(kind), Verdict(verdict), signature, *settings[setting], issue)
        outcomes[place] = known[key]
    return {cell: tuple(outcomes) for cell, outcomes in found.items()}


def _facts(facts: Mapping[str, str], stack: str, tool: str) -> dict[str, str]:
    """Return the facts of a cell with the MPI that its ranks loaded and its benchmark program, if known."""
    return {**facts, **{name: text for name, text in (("stack", stack), ("tool", tool)) if text}}


def as_past(run: RunSummary) -> PastRuns:
    """Return one run in the form in which a history is read."""
    matrices = {f"matrix {one.name}": one.sha256[:_DIGEST] for one in run.matrices}
    row = {"id": run.id, "started": run.started, "machine": run.machine, "package": run.package, "folder": run.folder}
    cells = {
        PastCell(run.site, cell.matrix, cell.scenario, cell.axes): (
            PastOutcome(
                cell.kind,
                cell.verdict,
                cell.signature,
                _facts(cell.facts, cell.stack, cell.tool),
                cell.nodes,
                cell.issue,
            ),
        )
        for cell in run.cells
    }
    return PastRuns((_past_run({**row, "basis": json.dumps(dict(run.basis))}, matrices),), cells)
