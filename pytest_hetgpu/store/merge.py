"""Copies the runs of several sites into one run folder, in which a matrix is named `NAME@SITE` and a cell `SITE.LABEL`.

The files of the runs are only read. Raw logs (`.private`) are not copied.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.store import environment, events, writer_lock
from pytest_hetgpu.store.cells import RunRecord
from pytest_hetgpu.store.encode import to_json
from pytest_hetgpu.store.event_log import lines
from pytest_hetgpu.store.files import PRIVATE, READABLE, make_folder
from pytest_hetgpu.store.folder import LONGEST_NAME, RunFolder
from pytest_hetgpu.store.redaction.anonymity import is_anonymous, mark_anonymous

WRITER = "merge"
_SCENARIOS = "scenarios"
_HASH = 8


@dataclass(frozen=True)
class SiteRun:
    """A run with the name of its site."""

    site: str
    folder: Path
    record: RunRecord

    def matrix(self, name: str) -> str:
        """Return the name of a matrix in the merged run."""
        return f"{name}@{self.site}"

    def label(self, label: str) -> str:
        """Return the label of a cell in the merged run. A long one is cut and ends in a hash, as it names a folder."""
        whole = f"{self.site}.{label}"
        if len(whole) <= LONGEST_NAME:
            return whole
        digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
        return f"{whole[: LONGEST_NAME - _HASH - 1]}-{digest}"

    @property
    def id(self) -> str:
        """The id of the run."""
        return next((one.id for one in self.record.sessions if one.id), self.folder.resolve().name)

    @property
    def host(self) -> str:
        """The first host of pytest; "" if unknown."""
        return next((one.host for one in self.record.sessions), "")

    @cached_property
    def matrices(self) -> Mapping[str, str]:
        """The matrices of the run by their names in the merged run."""
        files = (one.name for session in self.record.sessions for one in session.matrices)
        return {self.matrix(name): name for name in (*files, *(cell.matrix for cell in self.record.cells))}

    @cached_property
    def writers(self) -> Mapping[str, bool | None]:
        """Whether the writer of each journal is alive, by the name of the writer."""
        paths = sorted((self.folder / "journal").glob("*.jsonl"))
        return {path.stem: writer_lock.writer_alive(path) for path in paths}

    @cached_property
    def folders(self) -> Mapping[str, str]:
        """The names of the folders of cells, and their names in the merged run."""
        here = RunFolder(self.folder)
        names = {here.scenario(cell.label).name: cell.label for cell in self.record.cells}
        return {name: here.scenario(self.label(label)).name for name, label in names.items()}

    def folder_of(self, name: str) -> str:
        """Return the name of the folder of a cell in the merged run, also of a cell that the journal lacks."""
        return self.folders.get(name) or RunFolder(self.folder).scenario(self.label(name)).name


def copy_runs(runs: Sequence[SiteRun], into: Path) -> None:
    """Write the journals, logs and placements of the runs into an empty folder.

    If a run is anonymous, the merged one is. Raises OSError, and UsageError if two cells would share a folder.
    """
    for name in ("journal", _SCENARIOS):
        make_folder(into / name)
    own: list[Mapping[str, Any]] = []
    part = 0
    for run, positions in zip(runs, _positions(runs), strict=True):
        own += _copy_journals(run, into, part, positions)
        _copy_scenarios(run, into)
        _copy_placements(run, into)
        if is_anonymous(run.folder):
            mark_anonymous(into)
        part += run.record.part + 1
    with _create(into / "journal" / f"{WRITER}.jsonl", PRIVATE) as file:
        for order, event in enumerate(own):
            file.write(_line({**event, "order": order}))


def _positions(runs: Sequence[SiteRun]) -> list[Mapping[str, int]]:
    """Return for each run what is added to the positions of each matrix: the sites of one matrix follow each other."""
    found: list[dict[str, int]] = [{} for _ in runs]
    free = 0
    for matrix in dict.fromkeys(cell.matrix for run in runs for cell in run.record.cells):
        for run, offsets in zip(runs, found, strict=True):
            places = [cell.position for cell in run.record.cells if cell.matrix == matrix and cell.position is not None]
            offsets[matrix] = free - min(places, default=0)
            free += 1 + max(places, default=0) - min(places, default=0)
    return list(found)


def _copy_journals(run: SiteRun, into: Path, part: int, positions: Mapping[str, int]) -> list[Mapping[str, Any]]:
    """Copy the journals with the names of the merged run; return the events on them, which precede all of the run."""
    labelled = set()
    for writer in run.writers:
        path = run.folder / "journal" / f"{writer}.jsonl"
        with _create(into / "journal" / f"{_writer(run, writer)}.jsonl", PRIVATE) as file:
            for line in lines(path):
                event = _parse(line)
                if event is None:  # it stays what it is: damaged
                    file.write(line if line.endswith(b"\n") else line + b"\n")
                    continue
                if "label" in event:
                    labelled.add((str(event.get("matrix")), str(event.get("scenario"))))
                file.write(_line(_renamed(event, run, part, positions)))
    merged = events.Merged(
        run.site,
        run.id,
        run.host,
        matrices=run.matrices,
        writers={_writer(run, writer): alive for writer, alive in run.writers.items()},
    )
    plans: list[events.Event] = [
        events.Planned(run.matrix(cell.matrix), cell.scenario, run.label(cell.label), cell.axes)
        for cell in run.record.cells
        if (cell.matrix, cell.scenario) not in labelled
    ]
    return [_envelope(event, part) for event in [merged, *plans]]


def _envelope(event: events.Event, part: int) -> Mapping[str, Any]:
    """Return an event as a line that precedes all lines of its part."""
    line = {"schema": events.SCHEMA, "event": events.NAMES[type(event)], "epoch": time.time(), "part": part}
    return {**line, "clock": 0.0, **to_json(event)}


def _writer(run: SiteRun, writer: str) -> str:
    return f"{writer}@{run.site}"


def _line(event: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(event, separators=(',', ':'))}\n".encode("ascii")


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _renamed(event: dict[str, Any], run: SiteRun, part: int, positions: Mapping[str, int]) -> dict[str, Any]:
    """Return an event with the names and the order of the merged run. Fields of a wrong type stay."""
    before = event.get("part", 0)
    changes: dict[str, Any] = {"part": part + max(before, 0) if type(before) is int else before}
    if isinstance(event.get("matrix"), str):
        changes["matrix"] = run.matrix(event["matrix"])
    if isinstance(event.get("label"), str):
        changes["label"] = run.label(event["label"])
        if type(event.get("position")) is int:
            changes["position"] = positions.get(str(event.get("matrix")), 0) + event["position"]
    if isinstance(event.get("matrices"), list):
        changes["id"] = ""  # the merged run has its own
        changes["matrices"] = [_renamed_file(one, run) for one in event["matrices"]]
    return {name: _with_logs(name, value, run) for name, value in {**event, **changes}.items()}


def _renamed_file(file: object, run: SiteRun) -> object:
    known = isinstance(file, dict) and isinstance(file.get("name"), str)
    return {**file, "name": run.matrix(file["name"])} if known else file  # type: ignore[dict-item,index]


def _with_logs(name: str, value: object, run: SiteRun) -> object:
    """Return a value of an event with the paths of logs in the merged run."""
    if isinstance(value, dict):
        return {key: _with_logs(key, one, run) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_logs("", one, run) for one in value]
    if name == "log" and isinstance(value, str) and value.startswith(f"{_SCENARIOS}/"):
        _, folder, *rest = value.split("/")
        return "/".join((_SCENARIOS, run.folder_of(folder), *rest))
    return value


def _copy_scenarios(run: SiteRun, into: Path) -> None:
    home = run.folder / _SCENARIOS
    for path in sorted(home.iterdir()) if home.is_dir() else ():
        if path.is_dir():
            target = into / _SCENARIOS / run.folder_of(path.name)
            if target.exists():
                raise _shared_name(run, target)
            _copy_tree(path, target, run)


def _shared_name(run: SiteRun, path: Path) -> UsageError:
    return UsageError(f"two runs would share the folder {path.name}: give {run.folder} another name (NAME=FOLDER)")


def _copy_tree(source: Path, target: Path, run: SiteRun) -> None:
    make_folder(target)
    for path in sorted(source.iterdir()):
        if path.is_dir() and not path.is_symlink():
            _copy_tree(path, target / path.name, run)
        elif path.name == "job.json":
            with _create(target / path.name, PRIVATE) as file:
                file.write(_renamed_job(_read(path), run))
        else:
            _copy_file(path, target / path.name)


def _renamed_job(text: bytes, run: SiteRun) -> bytes:
    """Return the stored job of a cell with its names in the merged run; as it is if it cannot be read."""
    data = _parse(text)
    job = data.get("job") if data else None
    if not data or not isinstance(job, dict):
        return text
    names = (("matrix", run.matrix), ("label", run.label))
    job |= {name: rename(job[name]) for name, rename in names if isinstance(job.get(name), str)}
    return _line(data)


def _copy_placements(run: SiteRun, into: Path) -> None:
    """Copy the facts of nodes, which are named after their matrix. Files that cannot be read are left out."""
    matrices = {f"{cell.matrix}-{cell.axes.get('placement', '')}": cell.matrix for cell in run.record.cells}
    for placement in environment.read_all(run.folder):
        prefixes = (name for name in run.matrices.values() if placement.name.startswith(f"{name}-"))
        matrix = matrices.get(placement.name) or max(prefixes, key=len, default=placement.name)
        name = f"{run.matrix(matrix)}{placement.name.removeprefix(matrix)}"
        path = environment.path_of(into, name)
        if path.exists():
            raise _shared_name(run, path.parent)
        environment.write(into, replace(placement, name=name))


def _copy_file(source: Path, target: Path) -> None:
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file, _create(target, os.fstat(descriptor).st_mode & READABLE) as copy:
        shutil.copyfileobj(file, copy, 1 << 20)


def _read(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read()


def _create(path: Path, mode: int) -> Any:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb")


def is_merged(folder: Path) -> bool:
    """Return whether a merge made this folder, by the first line of its journal of that name."""
    with suppress(OSError):
        first = next(lines(folder / "journal" / f"{WRITER}.jsonl"), b"")
        return (_parse(first) or {}).get("event") == events.NAMES[events.Merged]
    return False
