"""Reads and writes runs in the history.

One transaction stores a run, and replaces any earlier record of the same run.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_hetgpu.errors import HistoryError, NoHistory
from pytest_hetgpu.store import database, history_rows
from pytest_hetgpu.store.database import Database
from pytest_hetgpu.store.run_summary import RunSummary

if TYPE_CHECKING:
    from pytest_hetgpu.store.history_place import HistoryPlace

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


def put_or_explain(place: HistoryPlace, run: RunSummary) -> list[str]:
    """Store a run at the end of a session. Return messages for the user; never raise."""
    try:
        message = put(place, run)
    except Exception as error:  # noqa: BLE001 - the run is over and reported, whatever is wrong with the history
        target = "FILE" if isinstance(place, Path) else shlex.quote(str(place))
        later = f"hetgpu report {shlex.quote(run.folder)} --history {target} puts it in later"
        return [f"history: this run is not in it ({error}); {later}"]
    return [f"history: {message}"] if message else []


def put(place: HistoryPlace, run: RunSummary) -> str:
    """Store a run in place of its earlier record. Return "", or a sentence on a damaged file. Raises HistoryError."""
    return database.write(place, lambda db: _put(db, place, run))


def list_runs(place: HistoryPlace) -> tuple[HistoryEntry, ...]:
    """List the runs in the history, the newest first. Raises HistoryError if there is none or it cannot be read."""
    with database.connect(place) as db:
        names: dict[str, set[str]] = {}
        for row in db.rows("SELECT run.id AS id, name FROM matrix JOIN run ON run.number = matrix.run"):
            names.setdefault(row["id"], set()).add(row["name"])
        found = db.rows("SELECT id, started FROM run ORDER BY started DESC, id DESC")
        return tuple(HistoryEntry(one["id"], one["started"], frozenset(names.get(one["id"], ()))) for one in found)


def load_run(place: HistoryPlace, run: str, *, measured: bool = True) -> RunSummary:
    """Read one run, with its measurements if `measured`. Raises HistoryError if the history lacks it."""
    with database.connect(place) as db:
        found = list(db.rows("SELECT * FROM run WHERE id = :run", run=run))
        if not found:
            raise HistoryError(f"{place} holds no run {run!r}")
        return history_rows.load(db, dict(found[0]), measured=measured)


def last_durations(place: HistoryPlace, runs: int = 10) -> dict[tuple[str, str], float]:
    """Return the last duration in seconds of each cell (matrix, id) in the newest `runs`; {} without a history."""
    query = (
        "SELECT matrix, scenario, seconds FROM outcome JOIN run ON run.number = outcome.run"
        " JOIN identity ON identity.id = outcome.identity"
        " WHERE outcome.run IN (SELECT number FROM run ORDER BY started DESC, id DESC LIMIT :runs) AND seconds > 0"
        " ORDER BY run.started, run.id"
    )
    try:
        with database.connect(place) as db:
            return {(row["matrix"], row["scenario"]): row["seconds"] for row in db.rows(query, runs=runs)}
    except NoHistory:
        return {}


def previous_run(place: HistoryPlace, run: str, matrices: Iterable[str], until: float = math.inf) -> RunSummary | None:
    """Find the newest other run with one of the matrices that started before `until`. Omit its measurements.

    Return None if there is none, or if the history cannot be read.
    """
    wanted = frozenset(matrices)
    try:
        listed = (one for one in list_runs(place) if one.id != run and one.started < until and one.matrices & wanted)
        found = next(listed, None)
        return load_run(place, found.id, measured=False) if found else None
    except HistoryError:
        return None


def _put(db: Database, place: HistoryPlace, run: RunSummary) -> None:
    """Insert a run in place of its earlier record. Raises HistoryError if another run has its id."""
    for there in list(db.rows("SELECT started, machine FROM run WHERE id = :id", id=run.id)):
        if there["started"] != run.started:
            raise HistoryError(f"{place} holds another run {run.id}, of {there['machine'] or 'another machine'}")
        db.change("DELETE FROM run WHERE id = :id", {"id": run.id})
    history_rows.insert(db, run)
