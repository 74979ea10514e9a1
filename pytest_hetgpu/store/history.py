"""Reads and writes runs in the history.

One transaction stores a run, and replaces any earlier record of the same run.
"""

from __future__ import annotations

import json
import math
import shlex
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import database
from pytest_hetgpu.store.database import HistoryError
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary

__all__ = [
    "HistoryEntry",
    "HistoryError",
    "last_durations",
    "list_runs",
    "load_run",
    "previous_run",
    "put",
    "put_or_explain",
]


class HistoryEntry(NamedTuple):
    """A run in a list of the history."""

    id: str
    started: float
    matrices: frozenset[str]


def put_or_explain(path: Path, run: RunSummary) -> list[str]:
    """Store a run at the end of a session. Return messages for the user; never raise."""
    try:
        message = put(path, run)
    except Exception as error:  # noqa: BLE001 - the run is over and reported, whatever is wrong with the history
        later = f"hetgpu report {shlex.quote(run.folder)} --history FILE puts it in later"
        return [f"history: this run is not in it ({error}); {later}"]
    return [f"history: {message}"] if message else []


def put(path: Path, run: RunSummary) -> str:
    """Store a run in place of its earlier record. Return "", or a sentence on a damaged file. Raises HistoryError."""
    return database.write(path, lambda db: _insert(db, path, run))


def list_runs(path: Path) -> tuple[HistoryEntry, ...]:
    """List the runs in the history, the newest first. Raises HistoryError if the file is missing or cannot be read."""
    with database.connect(path) as db:
        names: dict[str, set[str]] = {}
        for run, name in db.execute("SELECT run, name FROM matrix"):
            names.setdefault(run, set()).add(name)
        found = db.execute("SELECT id, started FROM run ORDER BY started DESC, id DESC").fetchall()
        return tuple(HistoryEntry(run, started, frozenset(names.get(run, ()))) for run, started in found)


def load_run(path: Path, run: str, *, measured: bool = True) -> RunSummary:
    """Read one run, with its measurements if `measured`. Raises HistoryError if the history lacks it."""
    with database.connect(path) as db:
        row = db.execute("SELECT folder, started, machine, package FROM run WHERE id = ?", (run,)).fetchone()
        if row is None:
            raise HistoryError(f"{path} holds no run {run!r}")
        matrices = db.execute("SELECT name, file, sha256 FROM matrix WHERE run = ? ORDER BY rowid", (run,)).fetchall()
        files = tuple(MatrixFile(*one) for one in matrices)
        return RunSummary(id=run, matrices=files, cells=tuple(_load_cells(db, run, measured=measured)), **dict(row))


def last_durations(path: Path, runs: int = 10) -> dict[tuple[str, str], float]:
    """Return the last duration in seconds of each cell (matrix, id) in the newest `runs`; {} without a history."""
    if not path.is_file():
        return {}
    with database.connect(path) as db:
        rows = db.execute(
            "SELECT matrix, scenario, seconds FROM cell JOIN run ON run.id = cell.run"
            " WHERE run IN (SELECT id FROM run ORDER BY started DESC, id DESC LIMIT ?) AND seconds > 0"
            " ORDER BY run.started, run.id",
            (runs,),
        )
        return {(matrix, scenario): taken for matrix, scenario, taken in rows}


def previous_run(path: Path, run: str, matrices: Iterable[str], until: float = math.inf) -> RunSummary | None:
    """Find the newest other run with one of the matrices that started before `until`. Omit its measurements.

    Return None if there is none, or if the history cannot be read.
    """
    wanted = frozenset(matrices)
    try:
        listed = (one for one in list_runs(path) if one.id != run and one.started < until and one.matrices & wanted)
        found = next(listed, None)
        return load_run(path, found.id, measured=False) if found else None
    except HistoryError:
        return None


def _insert(db: sqlite3.Connection, path: Path, run: RunSummary) -> None:
    there = db.execute("SELECT started, machine FROM run WHERE id = ?", (run.id,)).fetchone()
    if there is not None and there[0] != run.started:
        raise HistoryError(f"{path} holds another run {run.id}, of {there[1] or 'another machine'}")
    db.execute("DELETE FROM run WHERE id = ?", (run.id,))
    _insert_row(db, "run", (run.id, run.folder, run.started, run.machine, run.package))
    for one in run.matrices:
        _insert_row(db, "matrix", (run.id, one.name, one.file, one.sha256))
    for cell in run.cells:
        what = (cell.matrix, cell.scenario, cell.kind.value, cell.verdict.value, _json(dict(cell.axes)))
        why = (cell.signature, cell.why, _nan_to_null(cell.seconds), cell.stack)
        how = (_json(cell.transports), _json(dict(cell.facts)), cell.tool)
        number = _insert_row(db, "cell", (None, run.id, *what, *why, *how))
        for one_measured in _measurement_rows(cell.measurements):
            _insert_row(db, "measurement", (number, *one_measured))


def _insert_row(db: sqlite3.Connection, table: str, values: Sequence[object]) -> int | None:
    """Insert one row, with its text made valid UTF-8."""
    fit = [value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value for value in values]
    marks = ", ".join("?" * len(values))
    return db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", fit).lastrowid  # noqa: S608 - names of ours


def _measurement_rows(measurements: Iterable[Measurement]) -> Iterator[tuple[object, ...]]:
    for one in measurements:
        if max(abs(one.point.size), abs(one.ranks)) < 1 << 63:
            where = (one.point.size, one.point.dtype, one.point.place, one.ranks)
            yield (one.metric, *where, _nan_to_null(one.value), one.unit, _json(one.samples) if one.samples else "")


def _load_cells(db: sqlite3.Connection, run: str, *, measured: bool) -> Iterator[CellSummary]:
    numbers = _load_measurements(db, run) if measured else {}
    for row in db.execute("SELECT * FROM cell WHERE run = ? ORDER BY id", (run,)):
        yield CellSummary(
            matrix=row["matrix"],
            scenario=row["scenario"],
            kind=Kind(row["kind"]),
            verdict=Verdict(row["verdict"]),
            axes=json.loads(row["axes"]),
            signature=row["signature"],
            why=row["why"],
            seconds=_null_to_nan(row["seconds"]),
            stack=row["stack"],
            transports=tuple(json.loads(row["transports"])),
            facts=json.loads(row["facts"]),
            tool=row["tool"],
            measurements=tuple(numbers.get(row["id"], ())),
        )


def _load_measurements(db: sqlite3.Connection, run: str) -> dict[int, list[Measurement]]:
    """Read the measurements of each cell, by the number of the cell."""
    found: dict[int, list[Measurement]] = {}
    rows = db.execute(
        "SELECT measurement.* FROM measurement JOIN cell ON cell.id = cell WHERE run = ?"
        " ORDER BY cell, metric, dtype, place, size",
        (run,),
    )
    for row in rows:
        point = MessagePoint(row["size"], row["dtype"], row["place"])
        one = Measurement(row["metric"], _null_to_nan(row["value"]), row["unit"], point, row["ranks"])
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
