"""The journal of a run. Each event is on disk before anything else happens.

Each writer (a pytest process) appends to a file of its own, `<run>/journal/<writer>.jsonl`, with one `write` per event.
A killed process leaves at most one half line. The events `judged` and `run` are synced to the disk before the call
returns, with all events before them. A power cut does not lose them. `read_run` merges the files.
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
from pytest_hetgpu.store.cells import CellRecord, RunRecord, read_run
from pytest_hetgpu.store.encode import to_json
from pytest_hetgpu.store.events import MatrixFile, journal_schema
from pytest_hetgpu.store.files import make_folder, read_input
from pytest_hetgpu.store.redaction.redact import redact_json
from pytest_hetgpu.store.reserved_space import ReservedSpace

__all__ = [
    "CellRecord",
    "Journal",
    "JournalError",
    "MatrixFile",
    "RunRecord",
    "journal_schema",
    "matrix_file",
    "read_run",
]

_CHECKED = 4 << 10  # bytes of the last line that are compared with the file
_encode = json.JSONEncoder(separators=(",", ":")).encode


class JournalError(StorageError):
    """A journal that cannot be written: without it a run must not go on."""


def matrix_file(name: str, path: Path) -> MatrixFile:
    """Return a matrix file with the SHA-256 of its present contents. Raises OSError if it cannot be read."""
    return MatrixFile(name, str(path), hashlib.sha256(read_input(path)).hexdigest())


class Journal:
    """The journal of one writer in the run folder `folder`. Every method appends one event, redacted.

    An existing journal is continued with its numbering, after a newline if its last line is incomplete. `part` counts
    how often the run was resumed. Other processes can detect that the writer of an open journal lives. A `sole` journal
    has one writer at a time; UsageError names the other one.

    Raises JournalError if the file cannot be created or written. Raises FolderLost, once per loss, if the run's folder
    was renamed or deleted, or if another program changed the journal. Then `folder` is its new place, `lost` describes
    the loss, and the journal continues there.
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
            writer_lock.acquire(self._fd, self.path, sole=sole)
            self._order, self._torn = _count_lines(self.path)
            # The size after the last line, and the end of that line: one value, as two threads use it.
            self._written = (os.fstat(self._fd).st_size, b"")
        except OSError as error:
            raise JournalError(f"journal {self.path}: cannot be opened ({error.strerror})") from error
        self._reserved = ReservedSpace(self.path)
        if not self._order:
            for place in (self.path.parent, folder, folder.parent):
                _sync_folder(place)

    def session_started(
        self,
        matrices: Sequence[MatrixFile],
        argv: Sequence[str],
        options: Sequence[str] = (),
        basis: Mapping[str, str] | None = None,
    ) -> None:
        """Record the start of a session: its command line, its matrices, and the options that its cells need again.

        `basis` holds the inputs of the verdicts (`execution/resume/basis.py`).
        """
        began = events.SessionStarted(
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

    def sampled(self, event: events.Sampled) -> None:
        """Record the cells of a matrix that a strategy chose."""
        self._append(event)

    def planned(self, cell: Job | Scenario, position: int | None = None) -> None:
        """Record that the cell will run, as this job if it is one.

        `position` is its place in the order of the matrix files.
        """
        argv = cell.command.argv if isinstance(cell, Job) else ()
        planned = events.Planned(*_identity(cell), cell.label, _axes(cell), argv, position, cell.scaling)
        self._append(planned)

    def bandwidth_measured(self, job: Job, report: LinkReport) -> None:
        """Record the bandwidth between the nodes of the job's placement."""
        self._append(events.BandwidthMeasured(job.matrix, job.axes["placement"], report))

    def waiting(self, cell: Job | Scenario, why: str) -> None:
        """Record that the cell waits for a host, and its holder; "" ends the wait."""
        self._append(events.WaitingForHost(*_identity(cell), cell.label, why, os.getpid()))

    def started(self, cell: Job | Scenario) -> None:
        """Record that this process is about to start the cell's command."""
        self._append(events.Started(*_identity(cell), os.getpid()))

    def finished(self, cell: Job | Scenario, result: RunResult) -> None:
        """Record the end of the cell's command."""
        self._append(events.Finished(*_identity(cell), result))

    def attempted(self, cell: Job | Scenario, number: int, attempt: Attempt) -> None:
        """Record a failed attempt at the cell, which another attempt follows."""
        self._append(events.Attempted(*_identity(cell), number, attempt))

    def health(self, seen: events.HealthReported) -> None:
        """Record the health of nodes as seen by a job over several of them."""
        self._append(seen)

    def judged(self, cell: Job | Scenario, outcome: Outcome) -> None:
        """Record the outcome of the cell."""
        self._append(events.Judged(*_identity(cell), outcome), durable=True)

    def accepted(self, cell: Job | Scenario) -> None:
        """Record that the cell's test passed although its outcome is a failure."""
        self._append(events.Accepted(*_identity(cell)))

    def controlled(self, event: events.Controlled) -> None:
        """Record a further run for the condition of a failure."""
        self._append(event, durable=True)

    def tried(self, event: events.Tried | events.Shrunk | events.Bisected) -> None:
        """Record runs with a remedy, the smallest job that fails like a cell, or where the outcome changes."""
        self._append(event, durable=True)

    def check(self) -> None:
        """Raise FolderLost if the run's folder is no longer at its path, or if another program changed the journal."""
        with self._lock:
            if not self._is_lost():
                return
            if not rescue.is_lost(self._fd, self.path):
                self._accept_change()
                raise rescue.FolderLost(self.lost)
            home = rescue.relocate(self._fd, self.path)
            if home.fd != self._fd:
                writer_lock.acquire(home.fd, home.path, sole=False)
                os.close(self._fd)
            self._fd, self.path, self.folder = home.fd, home.path, home.run
            self._reserved.moved_to(home.path)
            self.lost = rescue.describe_loss(self._first, home)
        raise rescue.FolderLost(self.lost)

    def is_lost(self) -> bool:
        """Return whether the run's folder is lost and `check` has not raised yet. Any thread may call it."""
        with self._lock:
            return not self.lost and self._is_lost()

    def _is_lost(self) -> bool:
        return self._fd >= 0 and (rescue.is_lost(self._fd, self.path) or self._is_changed())

    def _is_changed(self) -> bool:
        """Return whether the file lacks the last line that was written, at its place."""
        return not rescue.ends_with(self._fd, *self._written)

    def _accept_change(self) -> None:
        """Describe the change of the journal, and continue after what is there now."""
        size = os.fstat(self._fd).st_size
        self.lost = rescue.describe_change(self.path, self._written[0], size)
        self._written, self._torn = (size, b""), True

    def release_reserved_space(self) -> None:
        """Release the reserved space on a full disk, for a few more lines."""
        self._reserved.release()

    def skipped(
        self, cell: Job | Scenario, reason: str, *, issue: str | None = None, position: int | None = None
    ) -> None:
        """Record that the cell is not run, for `reason`."""
        event = events.Skipped(*_identity(cell), cell.label, reason, axes=_axes(cell), issue=issue, position=position)
        self._append(event)

    def close(self) -> None:
        """Close the journal; closing twice is fine."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                self._reserved.release()

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
        self._written = (os.lseek(self._fd, 0, os.SEEK_CUR), data[:written][-_CHECKED:])
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


def _sync_folder(folder: Path) -> None:
    """Sync the names in a folder to the disk: files synced below it must be found again."""
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


def _count_lines(path: Path) -> tuple[int, bool]:
    """Count the lines in a journal, and return whether the last one lacks its end."""
    if not path.is_file():
        return 0, False
    lines, last = 0, b"\n"
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            lines += chunk.count(b"\n")
            last = chunk[-1:]
    return lines + (last != b"\n"), last != b"\n"
