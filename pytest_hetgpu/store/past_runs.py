"""Reads the outcomes of the newest runs in a history, cell by cell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import database

_DIGEST = 12


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run: its id, its start in seconds since 1970, and what all of its cells share, by name."""

    id: str
    started: float
    shared: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PastOutcome:
    """The outcome of a cell in one run; `facts` are its versions and settings."""

    kind: Kind
    verdict: Verdict
    signature: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

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
class PastRuns:
    """The newest runs of a history, the newest last, and the outcome of each cell (matrix, id) in each of them."""

    runs: tuple[PastRun, ...]
    cells: Mapping[tuple[str, str], tuple[PastOutcome | None, ...]] = field(default_factory=dict)


def past_runs(path: Path, last: int) -> PastRuns:
    """Read the newest `last` runs. Raises HistoryError if the file is missing or cannot be read."""
    with database.connect(path) as db:
        newest = "SELECT id, started, machine, package FROM run ORDER BY started DESC, id DESC LIMIT ?"
        rows = db.execute(newest, (last,)).fetchall()[::-1]
        places = {row["id"]: place for place, row in enumerate(rows)}
        files: dict[str, dict[str, str]] = {}
        for run, name, digest in db.execute("SELECT run, name, sha256 FROM matrix"):
            files.setdefault(run, {})[f"matrix {name}"] = digest[:_DIGEST]
        runs = tuple(
            PastRun(row["id"], row["started"], _shared(row["machine"], row["package"], files.get(row["id"], {})))
            for row in rows
        )
        known: dict[tuple[str, str, str], dict[str, str]] = {}
        outcomes: dict[tuple[str, str], list[PastOutcome | None]] = {}
        wanted = "SELECT run, matrix, scenario, kind, verdict, signature, stack, facts, tool FROM cell WHERE run IN"
        query = f"{wanted} (SELECT id FROM run ORDER BY started DESC, id DESC LIMIT ?) ORDER BY id"  # noqa: S608 - ours
        for row in db.execute(query, (last,)):
            cell = outcomes.setdefault((row["matrix"], row["scenario"]), [None] * len(rows))
            key = (row["facts"], row["stack"], row["tool"])
            # Most cells of most runs have equal facts.
            facts = known.get(key) or known.setdefault(key, _facts(*key))
            outcome = PastOutcome(Kind(row["kind"]), Verdict(row["verdict"]), row["signature"], facts)
            cell[places[row["run"]]] = outcome
        return PastRuns(runs, {cell: tuple(found) for cell, found in outcomes.items()})


def _facts(facts: str, stack: str, tool: str) -> dict[str, str]:
    own = {"stack": stack, "tool": tool}
    return {**json.loads(facts), **{name: value for name, value in own.items() if value}}


def _shared(machine: str, package: str, matrices: Mapping[str, str]) -> dict[str, str]:
    return {**matrices, "host of pytest": machine, "pytest-hetgpu": package}
