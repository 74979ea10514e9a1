"""The history of all runs: what is put into the file, and read from it.

A run is put in with one transaction, and replaces what the file held of that very run.
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
from pytest_hetgpu.store.run_summary import PastCell, PastRun

__all__ = ["HistoryError", "Listed", "before", "kept", "load", "put", "runs", "seconds"]


class Listed(NamedTuple):
    """A run as a list of the history has it."""

    id: str
    started: float
    matrices: frozenset[str]


def kept(path: Path, run: PastRun) -> list[str]:
    """Puts a run into the history, at the end of a session. Gives what the user should be told, and never raises."""
    try:
        said = put(path, run)
    except Exception as error:  # noqa: BLE001 - the run is over and reported, whatever is wrong with the history
        later = f"hetgpu report {shlex.quote(run.folder)} --history FILE puts it in later"
        return [f"history: this run is not in it ({error}); {later}"]
    return [f"history: {said}"] if said else []


def put(path: Path, run: PastRun) -> str:
    """Puts a run in, in place of what was there of it. Gives "", or what became of a damaged file.

    Raises HistoryError where that cannot be done.
    """
    return database.write(path, lambda db: _insert(db, path, run))


def runs(path: Path) -> tuple[Listed, ...]:
    """The runs in the history, the newest first. Raises HistoryError where it cannot be read, or is not there."""
    with database.reading(path) as db:
        names: dict[str, set[str]] = {}
        for run, name in db.execute("SELECT run, name FROM matrix"):
            names.setdefault(run, set()).add(name)
        found = db.execute("SELECT id, started FROM run ORDER BY started DESC, id DESC").fetchall()
        return tuple(Listed(run, started, frozenset(names.get(run, ()))) for run, started in found)


def load(path: Path, run: str, *, measured: bool = True) -> PastRun:
    """One run of the history, its numbers where they are `measured`. Raises HistoryError where it is not there."""
    with database.reading(path) as db:
        row = db.execute("SELECT folder, started, machine, package FROM run WHERE id = ?", (run,)).fetchone()
        if row is None:
            raise HistoryError(f"{path} holds no run {run!r}")
        matrices = db.execute("SELECT name, file, sha256 FROM matrix WHERE run = ? ORDER BY rowid", (run,)).fetchall()
        files = tuple(MatrixFile(*one) for one in matrices)
        return PastRun(id=run, matrices=files, cells=tuple(_cells(db, run, measured=measured)), **dict(row))


def seconds(path: Path, runs: int = 10) -> dict[tuple[str, str], float]:
    """What each cell (matrix, id) took the last time, in the newest `runs`; nothing where there is no history."""
    if not path.is_file():
        return {}
    with database.reading(path) as db:
        rows = db.execute(
            "SELECT matrix, scenario, seconds FROM cell JOIN run ON run.id = cell.run"
            " WHERE run IN (SELECT id FROM run ORDER BY started DESC, id DESC LIMIT ?) AND seconds > 0"
            " ORDER BY run.started, run.id",
            (runs,),
        )
        return {(matrix, scenario): taken for matrix, scenario, taken in rows}


def before(path: Path, run: str, matrices: Iterable[str], until: float = math.inf) -> PastRun | None:
    """The newest run but `run` itself that has one of the matrices and started before `until`, without its numbers.

    None where there is none, and where the history cannot be read.
    """
    wanted = frozenset(matrices)
    try:
        listed = (one for one in runs(path) if one.id != run and one.started < until and one.matrices & wanted)
        found = next(listed, None)
        return load(path, found.id, measured=False) if found else None
    except HistoryError:
        return None


def _insert(db: sqlite3.Connection, path: Path, run: PastRun) -> None:
    there = db.execute("SELECT started, machine FROM run WHERE id = ?", (run.id,)).fetchone()
    if there is not None and there[0] != run.started:
        raise HistoryError(f"{path} holds another run {run.id}, of {there[1] or 'another machine'}")
    db.execute("DELETE FROM run WHERE id = ?", (run.id,))
    _row(db, "run", (run.id, run.folder, run.started, run.machine, run.package))
    for one in run.matrices:
        _row(db, "matrix", (run.id, one.name, one.file, one.sha256))
    for cell in run.cells:
        what = (cell.matrix, cell.scenario, cell.kind.value, cell.verdict.value, _json(dict(cell.axes)))
        why = (cell.signature, cell.why, _number(cell.seconds), cell.stack)
        how = (_json(cell.transports), _json(dict(cell.facts)), cell.tool)
        number = _row(db, "cell", (None, run.id, *what, *why, *how))
        for one_measured in _measured(cell.measurements):
            _row(db, "measurement", (number, *one_measured))


def _row(db: sqlite3.Connection, table: str, values: Sequence[object]) -> int | None:
    """Puts one row in, its text fit for UTF-8."""
    fit = [value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value for value in values]
    marks = ", ".join("?" * len(values))
    return db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", fit).lastrowid  # noqa: S608 - names of ours


def _measured(measurements: Iterable[Measurement]) -> Iterator[tuple[object, ...]]:
    for one in measurements:
        if max(abs(one.point.size), abs(one.ranks)) < 1 << 63:
            where = (one.point.size, one.point.dtype, one.point.place, one.ranks)
            yield (one.metric, *where, _number(one.value), one.unit, _json(one.samples) if one.samples else "")


def _cells(db: sqlite3.Connection, run: str, *, measured: bool) -> Iterator[PastCell]:
    numbers = _numbers(db, run) if measured else {}
    for row in db.execute("SELECT * FROM cell WHERE run = ? ORDER BY id", (run,)):
        yield PastCell(
            matrix=row["matrix"],
            scenario=row["scenario"],
            kind=Kind(row["kind"]),
            verdict=Verdict(row["verdict"]),
            axes=json.loads(row["axes"]),
            signature=row["signature"],
            why=row["why"],
            seconds=_told_number(row["seconds"]),
            stack=row["stack"],
            transports=tuple(json.loads(row["transports"])),
            facts=json.loads(row["facts"]),
            tool=row["tool"],
            measurements=tuple(numbers.get(row["id"], ())),
        )


def _numbers(db: sqlite3.Connection, run: str) -> dict[int, list[Measurement]]:
    """The measurements of each cell, by its number."""
    found: dict[int, list[Measurement]] = {}
    rows = db.execute(
        "SELECT measurement.* FROM measurement JOIN cell ON cell.id = cell WHERE run = ?"
        " ORDER BY cell, metric, dtype, place, size",
        (run,),
    )
    for row in rows:
        point = MessagePoint(row["size"], row["dtype"], row["place"])
        one = Measurement(row["metric"], _told_number(row["value"]), row["unit"], point, row["ranks"])
        if row["samples"]:
            one = replace(one, samples=tuple(map(float, json.loads(row["samples"]))))
        found.setdefault(row["cell"], []).append(one)
    return found


def _number(value: float) -> float | None:
    """SQLite knows no NaN."""
    return None if math.isnan(value) else value


def _told_number(value: float | None) -> float:
    return math.nan if value is None else value


_json = json.JSONEncoder(separators=(",", ":")).encode
