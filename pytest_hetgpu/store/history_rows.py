"""A run as rows of the history, and back. `history_schema.py` describes the tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pytest_hetgpu.model.quantities import split_unit, stored_unit
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.database import Database
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.history_schema import digest
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary

_SHARED = {
    "identity": ("matrix", "scenario", "axes"),
    "setting": ("stack", "transports", "facts", "tool", "nodes"),
    "point": ("metric", "size", "dtype", "place", "ranks", "unit"),
}
"""The tables of texts that are stored once, and the columns that make them different."""
_LARGEST = 1 << 63
_Values = dict[str, object]


def insert(db: Database, run: RunSummary) -> None:
    """Insert a run that the history lacks."""
    number = _next(db, "run", "number")
    matrices: dict[str, _Values] = {
        one.name: {"run": number, "place": place, "name": one.name, "file": one.file, "sha256": one.sha256}
        for place, one in enumerate(run.matrices)
    }
    values = {"id": run.id, "folder": run.folder, "started": run.started, "machine": run.machine}
    more = {"package": run.package, "site": run.site, "basis": _json(dict(run.basis))}
    _insert_all(db, "run", [{"number": number, **values, **more}])
    _insert_all(db, "matrix", matrices.values())
    # Of two records of a cell, the last counts.
    cells = {(cell.matrix, cell.scenario): cell for cell in run.cells}.values()
    identities = _ids(db, "identity", [_identity(cell) for cell in cells])
    settings = _ids(db, "setting", [_setting(cell) for cell in cells])
    first = _next(db, "outcome", "id")
    outcomes: list[_Values] = [
        {
            "id": first + place,
            "run": number,
            "identity": identity,
            "setting": setting,
            "kind": cell.kind.value,
            "verdict": cell.verdict.value,
            "signature": cell.signature,
            "why": cell.why,
            "issue": cell.issue,
            "seconds": _nan_to_null(cell.seconds),
        }
        for place, (cell, identity, setting) in enumerate(zip(cells, identities, settings, strict=True))
    ]
    _insert_all(db, "outcome", outcomes)
    measured = [(first + place, one) for place, cell in enumerate(cells) for one in _storable(cell.measurements)]
    points = _ids(db, "point", [_point(one) for _, one in measured])
    rows: Iterator[_Values] = (
        {"outcome": outcome, "point": point, "value": _nan_to_null(one.value), "samples": _samples(one)}
        for (outcome, one), point in zip(measured, points, strict=True)
    )
    _insert_all(db, "number", rows)


def _identity(cell: CellSummary) -> _Values:
    return {"matrix": cell.matrix, "scenario": cell.scenario, "axes": _json(dict(cell.axes))}


def _setting(cell: CellSummary) -> _Values:
    texts = {"stack": cell.stack, "transports": _json(cell.transports), "facts": _json(dict(cell.facts))}
    return {**texts, "tool": cell.tool, "nodes": _json(dict(cell.nodes))}


def _point(one: Measurement) -> _Values:
    where = {"size": one.point.size, "dtype": one.point.dtype, "place": one.point.place}
    return {"metric": one.metric, **where, "ranks": one.ranks, "unit": stored_unit(one)}


def _storable(measurements: Iterable[Measurement]) -> Iterable[Measurement]:
    """Return the measurements with sizes that fit into 64 bits; of two of the same, the last."""
    fitting = (one for one in measurements if max(abs(one.point.size), abs(one.ranks)) < _LARGEST)
    return {(one.metric, one.point): one for one in fitting}.values()


def _samples(one: Measurement) -> str:
    """Return the samples with six digits, more than any clock of a rank has."""
    return _json([float(f"{value:.6g}") for value in one.samples]) if one.samples else ""


def _ids(db: Database, table: str, wanted: Iterable[_Values]) -> list[int]:
    """Return the number of each row in a table of shared texts; insert those that it lacks."""
    known = {row["digest"]: row["id"] for row in db.rows(f"SELECT id, digest FROM {table}")}  # noqa: S608 - a name of ours
    free = max(known.values(), default=0) + 1
    found: list[int] = []
    new: list[_Values] = []
    for values in map(_fit, wanted):
        name = digest(*(values[column] for column in _SHARED[table]))
        if name not in known:
            known[name] = free + len(new)
            new.append({"id": known[name], **values, "digest": name})
        found.append(known[name])
    _insert_all(db, table, new)
    return found


def _next(db: Database, table: str, column: str) -> int:
    """Return the number of the next row. The open transaction is the only writer."""
    [row] = db.rows(f"SELECT max({column}) AS last FROM {table}")  # noqa: S608 - names of ours
    return (row["last"] or 0) + 1


def _insert_all(db: Database, table: str, rows: Iterable[Mapping[str, object]]) -> None:
    every = [_fit(row) for row in rows]
    if every:
        names = ", ".join(every[0])
        marks = ", ".join(f":{name}" for name in every[0])
        db.change(f"INSERT INTO {table} ({names}) VALUES ({marks})", *every)  # noqa: S608 - names of ours


def _fit(row: Mapping[str, object]) -> _Values:
    """Return a row with its texts made valid: UTF-8, and without the zero that PostgreSQL refuses."""
    return {name: _text(value) if isinstance(value, str) else value for name, value in row.items()}


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def load(db: Database, run: Mapping[str, object], *, measured: bool) -> RunSummary:
    """Return the run of a row of the table `run`."""
    number = run["number"]
    matrices = db.rows("SELECT name, file, sha256 FROM matrix WHERE run = :run ORDER BY place", run=number)
    files = tuple(MatrixFile(one["name"], one["file"], one["sha256"]) for one in matrices)
    values = {name: value for name, value in run.items() if name not in ("number", "basis")}
    basis = json.loads(str(run["basis"]))
    cells = tuple(_load_cells(db, number, measured=measured))
    return RunSummary(**values, matrices=files, cells=cells, basis=basis)  # type: ignore[arg-type]


def _load_cells(db: Database, number: object, *, measured: bool) -> Iterator[CellSummary]:
    numbers = _load_measurements(db, number) if measured else {}
    query = (
        "SELECT outcome.id AS id, matrix, scenario, kind, verdict, axes, signature, why, issue, seconds, stack,"
        " transports, facts, tool, nodes FROM outcome JOIN identity ON identity.id = outcome.identity"
        " JOIN setting ON setting.id = outcome.setting WHERE outcome.run = :run ORDER BY outcome.id"
    )
    for row in db.rows(query, run=number):
        yield CellSummary(
            matrix=row["matrix"],
            scenario=row["scenario"],
            kind=Kind(row["kind"]),
            verdict=Verdict(row["verdict"]),
            axes=json.loads(row["axes"]),
            signature=row["signature"],
            why=row["why"],
            issue=row["issue"],
            seconds=_null_to_nan(row["seconds"]),
            stack=row["stack"],
            transports=tuple(json.loads(row["transports"])),
            facts=json.loads(row["facts"]),
            tool=row["tool"],
            nodes=json.loads(row["nodes"]),
            measurements=tuple(numbers.get(row["id"], ())),
        )


def _load_measurements(db: Database, number: object) -> dict[int, list[Measurement]]:
    """Read the measurements of each cell, by the number of the outcome."""
    found: dict[int, list[Measurement]] = {}
    query = (
        "SELECT outcome.id AS cell, metric, size, dtype, place, ranks, value, unit, samples FROM outcome"
        " JOIN number ON number.outcome = outcome.id JOIN point ON point.id = number.point"
        " WHERE outcome.run = :run ORDER BY outcome.id, metric, dtype, place, size"
    )
    for row in db.rows(query, run=number):
        point = MessagePoint(row["size"], row["dtype"], row["place"])
        unit, better = split_unit(row["unit"])
        one = Measurement(row["metric"], _null_to_nan(row["value"]), unit, point, row["ranks"], better=better)
        if row["samples"]:
            one = replace(one, samples=tuple(map(float, json.loads(row["samples"]))))
        found.setdefault(row["cell"], []).append(one)
    return found


def _nan_to_null(value: float) -> float | None:
    """Replace NaN by None: SQLite has no NaN."""
    return None if math.isnan(value) else value


def _null_to_nan(value: float | None) -> float:
    return math.nan if value is None else value


_json = json.JSONEncoder(separators=(",", ":")).encode
