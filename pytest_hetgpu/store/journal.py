"""The journal of a run: what was planned, started, finished and judged, on disk before anything else happens.

Each writer (a pytest process) appends to a file of its own, `<run>/journal/<writer>.jsonl`, one `write` an event, so
that a killed process leaves at most one half line. What took time to find out (`judged`), and what all the rest needs
(`run`), is on the disk itself when the call returns, power cut or not; so is then all that was written before it.
`read` merges the files.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pytest_hetgpu._version import __version__
from pytest_hetgpu.errors import StorageError
from pytest_hetgpu.model.bandwidth import LinkReport
from pytest_hetgpu.model.job import Job, Scenario
from pytest_hetgpu.model.outcome import Attempt, Outcome, RunResult
from pytest_hetgpu.store import events, rescue, writer_lock
from pytest_hetgpu.store.cells import CellRecord, RunRecord, State, read, read_run
from pytest_hetgpu.store.encode import to_json
from pytest_hetgpu.store.events import MatrixFile, journal_schema
from pytest_hetgpu.store.files import make_folder
from pytest_hetgpu.store.redaction.redact import redact_json
from pytest_hetgpu.store.reserved_space import Reserve

__all__ = [
    "CellRecord",
    "Journal",
    "JournalError",
    "MatrixFile",
    "RunRecord",
    "State",
    "journal_schema",
    "matrix_file",
    "read",
    "read_run",
]

_encode = json.JSONEncoder(separators=(",", ":")).encode


class JournalError(StorageError):
    """The journal cannot be written: without it a run must not go on."""


def matrix_file(name: str, path: Path) -> MatrixFile:
    """A matrix file with the SHA-256 of what it holds now. Raises OSError if it cannot be read."""
    return MatrixFile(name, str(path), hashlib.sha256(path.read_bytes()).hexdigest())


class Journal:
    """One writer's journal in the run folder `folder`. Every method appends one event, redacted, and returns.

    A journal that exists is continued: its numbering goes on, and a half line at its end is ended first. `part` counts
    how often the run has been taken up again. While it is open others can tell that its writer lives; of a `sole` one
    there is one at a time: UsageError names who has it.
    Raises JournalError where the file cannot be made or written. Raises FolderLost, once per loss, where the run's
    folder was renamed or deleted: `folder` is its new place then, `lost` says what happened, and the journal goes on
    there.
    """

    def __init__(self, folder: Path, writer: str, part: int = 0, *, sole: bool = False) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]*", writer):
            raise ValueError(f"a writer's name becomes a file name: {writer!r}")
        self.folder = folder
        self.lost = ""
        self._first = folder
        self._lock = threading.Lock()
        self.part = part
        self.path = folder / "journal" / f"{writer}.jsonl"
        try:
            make_folder(self.path.parent)
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            writer_lock.enter(self._fd, self.path, sole=sole)
            self._order, self._torn = _written(self.path)
        except OSError as error:
            raise JournalError(f"journal {self.path}: cannot be opened ({error.strerror})") from error
        self._reserve = Reserve(self.path)
        if not self._order:
            for place in (self.path.parent, folder, folder.parent):
                _sync_names(place)

    def run(
        self,
        matrices: Sequence[MatrixFile],
        argv: Sequence[str],
        options: Sequence[str] = (),
        basis: Mapping[str, str] | None = None,
    ) -> None:
        """A session begins now, started with `argv`, over these matrices; `options` is what its cells need again.

        `basis` is what their verdicts rest on (`execution/resume/basis.py`).
        """
        began = events.Run(
            __version__,
            tuple(matrices),
            tuple(argv),
            os.uname().nodename,
            time.time(),
            options=tuple(options),
            folder=str(Path.cwd()),
            id=self.folder.name,
            pid=os.getpid(),
            basis=basis or {},
        )
        self._append(began, durable=True)

    def planned(self, cell: Job | Scenario, position: int | None = None) -> None:
        """The cell will be run, as this job if it is one; `position` is its place in the order of the matrix files."""
        argv = cell.command.argv if isinstance(cell, Job) else ()
        self._append(events.Planned(*_identity(cell), cell.label, _axes(cell), argv=argv, position=position))

    def wire(self, job: Job, report: LinkReport) -> None:
        """What the way between the nodes of the job's placement can carry was found out."""
        self._append(events.Wired(job.matrix, job.axes["placement"], report))

    def waits(self, cell: Job | Scenario, why: str) -> None:
        """The cell waits for a host, and who holds it; "" once it waits no more."""
        self._append(events.Waits(*_identity(cell), cell.label, why))

    def started(self, cell: Job | Scenario) -> None:
        """The cell's command is about to be started by this process."""
        self._append(events.Started(*_identity(cell), os.getpid()))

    def finished(self, cell: Job | Scenario, result: RunResult) -> None:
        """The cell's command has ended."""
        self._append(events.Finished(*_identity(cell), result))

    def attempted(self, cell: Job | Scenario, number: int, attempt: Attempt) -> None:
        """An attempt at the cell failed, and another one follows."""
        self._append(events.Attempted(*_identity(cell), number, attempt))

    def health(self, seen: events.Health) -> None:
        """A job over several nodes told something of them."""
        self._append(seen)

    def judged(self, cell: Job | Scenario, outcome: Outcome) -> None:
        """The cell has its outcome."""
        self._append(events.Judged(*_identity(cell), outcome), durable=True)

    def accepted(self, cell: Job | Scenario) -> None:
        """The cell's test passed, though its outcome is a failure."""
        self._append(events.Accepted(*_identity(cell)))

    def check(self) -> None:
        """Raise FolderLost if the run's folder is no longer at its path."""
        with self._lock:
            if not self._is_lost():
                return
            home = rescue.found_again(self._fd, self.path)
            if home.fd != self._fd:
                writer_lock.enter(home.fd, home.path, sole=False)
                os.close(self._fd)
            self._fd, self.path, self.folder = home.fd, home.path, home.run
            self._reserve.moved(home.path)
            self.lost = rescue.told(self._first, home)
        raise rescue.FolderLost(self.lost)

    def astray(self) -> bool:
        """Return whether the folder of the run is lost and `check` has not raised yet. Any thread may call it."""
        with self._lock:
            return not self.lost and self._is_lost()

    def _is_lost(self) -> bool:
        return self._fd >= 0 and rescue.is_lost(self._fd, self.path)

    def make_room(self) -> None:
        """Gives up what is kept back on a full disk, so that a few lines more can be written."""
        self._reserve.give_up()

    def skipped(
        self, cell: Job | Scenario, reason: str, *, issue: str | None = None, position: int | None = None
    ) -> None:
        """The cell is not run, for `reason`."""
        event = events.Skipped(*_identity(cell), cell.label, reason, axes=_axes(cell), issue=issue, position=position)
        self._append(event)

    def close(self) -> None:
        """Nothing can be appended afterwards; closing twice is fine."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                self._reserve.give_up()

    def _append(self, event: events.Event, *, durable: bool = False) -> None:
        line = {
            "schema": events.SCHEMA,
            "event": events.NAMES[type(event)],
            "epoch": time.time(),
            "order": self._order,
            "part": self.part,
            "clock": round(time.monotonic(), 6),
        }
        data = f"{_encode({**line, **redact_json(to_json(event))})}\n".encode("ascii")
        self.check()
        if self._torn:
            data = b"\n" + data
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            raise JournalError(f"journal {self.path}: cannot be written ({error.strerror})") from error
        self._torn = written < len(data)
        if self._torn:
            raise JournalError(f"journal {self.path}: only {written} of {len(data)} bytes were written (disk full?)")
        self._order += 1
        if durable:
            self._sync()

    def _sync(self) -> None:
        try:
            (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(self._fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS):  # a file system that keeps nothing
                raise JournalError(f"journal {self.path}: cannot be written ({error.strerror})") from error


def _sync_names(folder: Path) -> None:
    """Has the names in a folder on the disk itself: what is synced below them must be found again."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _identity(cell: Job | Scenario) -> tuple[str, str]:
    return cell.matrix, cell.scenario if isinstance(cell, Job) else cell.id


def _axes(cell: Job | Scenario) -> Mapping[str, str]:
    return cell.axes if isinstance(cell, Job) else dict(zip(cell.axes, cell.values, strict=True))


def _written(path: Path) -> tuple[int, bool]:
    """Lines in a journal so far, and whether its last one lacks its end."""
    if not path.is_file():
        return 0, False
    lines, last = 0, b"\n"
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            lines += chunk.count(b"\n")
            last = chunk[-1:]
    return lines + (last != b"\n"), last != b"\n"
