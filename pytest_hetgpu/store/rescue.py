"""A run folder that is renamed or deleted while its journals are written: detected, found again, or rescued.

An open file outlives its name. The kernel names the new place of a renamed folder. The contents of a deleted journal
can be read until it is closed. They are copied to a folder beside the old one.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.errors import StorageError
from pytest_hetgpu.store.folder import RunFolder, update_latest

RESCUED_SUFFIX = ".rescued"
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_HEAD = 4 << 10  # bytes: the first line of a journal holds the time of its first event
_CHUNK = 1 << 20


class FolderLost(StorageError):
    """A run folder that is no longer at its path, or a changed journal; the message has the loss and how to go on."""


@dataclass(frozen=True)
class JournalLocation:
    """The place of a journal after its run folder was lost; `fd` is open on `path` for appending.

    `rescued` is True for a copy, and None if nothing could be copied. `loss` describes the loss of the folder.
    """

    path: Path
    fd: int
    rescued: bool | None
    loss: str

    @property
    def run(self) -> Path:
        """The folder of the run."""
        return self.path.parent.parent


def is_lost(fd: int, path: Path) -> bool:
    """Return whether `path` no longer leads to the open journal `fd`.

    Some network file systems change the number of a file. Equal contents are the same journal.
    """
    try:
        there, here = path.stat(), os.fstat(fd)
        if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
            return False
        with path.open("rb") as file:
            return there.st_size != here.st_size or file.read(_HEAD) != os.pread(fd, _HEAD, 0)
    except OSError as error:
        return error.errno in _GONE


def ends_with(fd: int, size: int, last: bytes) -> bool:
    """Return whether the open journal `fd` has at least `size` bytes, of which these are the last ones."""
    try:
        return os.fstat(fd).st_size >= size and os.pread(fd, len(last), size - len(last)) == last
    except OSError:  # an error of the disk is reported by the next write
        return True


def describe_change(journal: Path, size: int, now: int) -> str:
    """Describe a journal of `size` bytes that another program changed, and how to go on."""
    what = f"was cut from {size:,} to {now:,} bytes" if now < size else "was overwritten"
    return (
        f"the journal {journal} {what} by another program while cells ran, so the run stops; cells recorded before are "
        "missing from its reports: start a new run"
    )


def relocate(fd: int, path: Path) -> JournalLocation:
    """Return the new place of the journal `fd`, which is no longer at `path`; copy it if it has none."""
    with suppress(OSError):
        now = Path(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: PTH115 - the kernel's text, " (deleted)" at its end
        if not is_lost(fd, now):
            _move_raw_logs(path, now)
            return JournalLocation(now, fd, rescued=False, loss="renamed")
    loss = _loss(fd)
    for folder in _candidate_folders(path.parent.parent):
        with suppress(OSError):
            copy, to = _copy_journal(fd, folder / path.parent.name / path.name)
            _move_raw_logs(path, copy)
            return JournalLocation(copy, to, rescued=True, loss=loss)
    return JournalLocation(path, fd, rescued=None, loss=loss)


def describe_loss(run: Path, home: JournalLocation) -> str:
    """Describe the loss of the run folder `run`, and how to go on."""
    what = f"the journal of {run}" if run.is_dir() else str(run)
    message = f"{what} was {home.loss} while cells ran, so the run stops"
    before = RunFolder(run)
    left = f"; its raw logs are still in {before.private}" if before.count_raw_logs() else ""
    if home.rescued is None:
        return f"{message}; its journal could not be copied anywhere{left}"
    so = "what was judged is" if home.rescued else "everything is"
    there = shlex.quote(str(home.run))
    again = f"`hetgpu report {there}` builds its reports, pytest with `--hetgpu-resume={there}` runs the other cells"
    return f"{message}; {so} in {home.run} now: {again}{left}"


@contextmanager
def detect_loss(check: Callable[[], None]) -> Iterator[None]:
    """Check for a lost folder on entry, and whenever something inside is interrupted, or cannot find or write a file.

    `check` raises FolderLost, which replaces the error.
    """
    check()
    try:
        yield
    except FolderLost:
        raise
    except (OSError, StorageError, KeyboardInterrupt):
        check()
        raise


def _loss(fd: int) -> str:
    try:
        return "moved out of reach" if os.fstat(fd).st_nlink else "deleted"
    except OSError:  # a stale handle of a network file system
        return "deleted"


def _candidate_folders(run: Path) -> Iterator[Path]:
    """Yield folders that may hold a copy of the run, best first; each is ours alone."""
    for parent in (run.parent, *list(run.parent.parents)[:2], Path(tempfile.gettempdir())):
        folder = parent / f"{run.name.removesuffix(RESCUED_SUFFIX)}{RESCUED_SUFFIX}"
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022:
                yield folder


def _copy_journal(fd: int, path: Path) -> tuple[Path, int]:
    """Copy the contents of the open file `fd` to `path`; return the path and its open file."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    to = os.open(path, flags, 0o600)
    try:
        at = 0
        while piece := os.pread(fd, _CHUNK, at):
            at += len(piece)
            while piece:
                piece = piece[os.write(to, piece) :]
        os.fsync(to)
    except BaseException:
        os.close(to)
        path.unlink(missing_ok=True)
        raise
    return path, to


def _move_raw_logs(before: Path, now: Path) -> None:
    """Move the run's raw logs to its new place. Let `latest` lead there if both are in one folder of reports."""
    run, found = before.parent.parent, now.parent.parent
    with suppress(OSError):
        RunFolder(found).take_raw_logs(RunFolder(run))
    if run.parent == found.parent and (run.parent / "latest").is_symlink():
        update_latest(found)
