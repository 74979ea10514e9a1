"""From the user's name of a run to the run: a folder, a file, an id of the history, `latest` or `last:N`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_hetgpu.analysis.compare import from_junit, saved_side
from pytest_hetgpu.analysis.compare.sides import Side
from pytest_hetgpu.errors import HistoryError, UsageError
from pytest_hetgpu.model.messages import known
from pytest_hetgpu.store import history
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.files import NotPlainFile, open_input, refuse_links
from pytest_hetgpu.store.history import HistoryEntry
from pytest_hetgpu.store.run_summary import summarise

if TYPE_CHECKING:
    from pytest_hetgpu.store.history_place import HistoryPlace

LATEST = "latest"
_FEWEST_FOR_STEPS = 13
"""With fewer runs no step is found (`nights/prefilter.py`)."""
_LAST = re.compile(r"last[: ]\s*(\d{1,6})")


@dataclass(frozen=True, slots=True)
class RunLocations:
    """The two places in which runs are found: the folder of reports, and the history."""

    reports: Path
    history: HistoryPlace


def sides(before: str, after: str, places: RunLocations) -> tuple[Side, Side]:
    """Return both sides; `last:N` as the first are the runs before the second. Raise UsageError if one is not found."""
    later = find(after, places)
    return find(before, places, later), later


def find(name: str, places: RunLocations, later: Side | None = None) -> Side:
    """Return the side that the user calls `name`; for `last:N` the newest runs before `later` that share a matrix."""
    several = _LAST.fullmatch(name.strip())
    if several:
        return _last(name, int(several[1]), places, later)
    if "://" in name:
        raise UsageError("a URL is a history: give it with --history, and name a run in it")
    found = _on_disk(Path(name)) or (_latest(places) if name == LATEST else _on_disk(places.reports / name))
    return found or _remembered(name, places)


def _on_disk(path: Path) -> Side | None:
    try:
        if path.is_dir():
            return _folder(path)
        return _file(path) if path.exists() else None
    except NotPlainFile as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (OSError, ValueError):  # a name too long, a closed folder, a null byte
        return None


def _folder(path: Path) -> Side:
    if (path / "journal").is_dir():
        refuse_links(path)
        record = read_run(path)
        if not record.cells:
            raise UsageError(f"{path}: its journal holds no cell")
        return Side(str(path), (summarise(record, path),))
    junit = path / "junit.xml"
    if junit.is_file():
        return _file(junit)
    raise UsageError(f"{path}: not the folder of a run (it holds neither a folder `journal` nor junit.xml)")


def _file(path: Path) -> Side:
    with open_input(path) as file:
        start = file.read(15)
        if start.startswith(b"{"):
            return saved_side.read(path)
        if start == b"SQLite format 3":
            raise UsageError(f"{path} is a history: give --history {path} and name a run in it")
    return Side(str(path), (from_junit.read(path),), from_junit.NOTE.format(name=path))


def _latest(places: RunLocations) -> Side | None:
    """Return the newest run of the reports folder, else the newest of the history."""
    folder = places.reports / LATEST
    pointer = places.reports / f"{LATEST}.txt"  # for systems without links
    if not folder.is_dir() and pointer.is_file():
        folder = places.reports / pointer.read_text(encoding="utf-8").strip()
    if folder.is_dir():
        return replace(_folder(folder), name=LATEST)
    listed = _listed(LATEST, places)
    return _loaded(LATEST, listed[:1], places) if listed else None


def _last(name: str, count: int, places: RunLocations, later: Side | None) -> Side:
    if not count:
        raise UsageError(f"{name!r} are no runs at all")
    listed = list(history.list_runs(places.history))
    if later:
        ids = {run.id for run in later.runs}
        until = min((run.started for run in later.runs if run.started), default=float("inf"))
        listed = [one for one in listed if one.id not in ids and one.started <= until]
        listed = [one for one in listed if one.matrices & later.matrices.keys()] or listed
    if not listed:
        earlier = f" before {later.name}" if later else ""
        raise UsageError(f"the history {places.history} holds no run{earlier}")
    note = f"{name}: there are only {len(listed)}" if len(listed) < count else ""
    return _present_level(_loaded(name, listed[:count], places, note))


def _present_level(side: Side) -> Side:
    """Leave out what was measured before the last step of its level, if there are enough runs to find one."""
    if len(side.runs) < _FEWEST_FOR_STEPS:
        return side
    from pytest_hetgpu.analysis.nights.change_points import MissingExtra
    from pytest_hetgpu.analysis.nights.level_start import since_last_step

    try:
        found = since_last_step(side.runs)
    except MissingExtra as error:
        return replace(side, note="; ".join(filter(None, (side.note, f"{side.name}: {error}"))))
    steps = [f"{cell} {quantity} since {run}" for cell, quantity, run in found.steps]
    changed = (
        "1 level changed in these runs, and counts"
        if len(steps) == 1
        else f"{len(steps)} levels changed in these runs, and count"
    )
    note = f"{side.name}: {changed} from then on: {_some(steps, 3)}"
    return replace(side, runs=found.runs, note="; ".join(filter(None, (side.note, note if steps else ""))))


def _remembered(name: str, places: RunLocations) -> Side:
    """Return a run of the history by its id or the beginning of it."""
    listed = _listed(name, places)
    ids = [one.id for one in listed]
    found = [one for one in listed if one.id == name] or [one for one in listed if name and one.id.startswith(name)]
    if len(found) > 1:
        raise UsageError(f"{name!r} may be {len(found)} runs of {places.history}: {_some([one.id for one in found])}")
    if not found:
        raise UsageError(
            f"no run {name!r}: neither a folder or file here or in {places.reports}, nor in {places.history} "
            f"{known(name, ids)}"
        )
    return _loaded(name, found, places)


def _some(ids: Sequence[str], most: int = 6) -> str:
    return ", ".join(ids[:most]) + (f" and {len(ids) - most} more" if len(ids) > most else "")


def _listed(name: str, places: RunLocations) -> list[HistoryEntry]:
    try:
        return list(history.list_runs(places.history))
    except HistoryError as error:
        raise UsageError(f"no run {name!r}: no such folder or file, and {error}") from None


def _loaded(name: str, listed: Sequence[HistoryEntry], places: RunLocations, note: str = "") -> Side:
    return Side(name, tuple(history.load_run(places.history, one.id) for one in listed), note)
