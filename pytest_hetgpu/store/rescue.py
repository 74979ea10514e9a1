"""A run's folder that is renamed or deleted while its journals are written: noticed, found again, or rescued.

An open file outlives its name. The kernel names the new place of a renamed folder. The contents of a deleted journal
can be read until it is closed, and are copied to a folder beside the old one.
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
from pytest_hetgpu.store.folder import RunFolder, point_to

ENDING = ".rescued"
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_HEAD = 4 << 10  # bytes: the first line of a journal has the time of its first event
_PIECE = 1 << 20


class FolderLost(StorageError):
    """A run's folder that is no longer at its path; the message says what became of it, and how to go on."""


@dataclass(frozen=True)
class Home:
    """The place of a journal after its run's folder was lost; `fd` is open on `path` for appending.

    `rescued` is True for a copy, and None where nothing could be copied. `fate` is what became of the folder.
    """

    path: Path
    fd: int
    rescued: bool | None
    fate: str

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


def found_again(fd: int, path: Path) -> Home:
    """Return the new place of the journal `fd`, which is no longer at `path`; copy it where it has none."""
    with suppress(OSError):
        now = Path(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: PTH115 - the kernel's text, " (deleted)" at its end
        if not is_lost(fd, now):
            _bring(path, now)
            return Home(now, fd, rescued=False, fate="renamed")
    fate = _fate(fd)
    for folder in _beside(path.parent.parent):
        with suppress(OSError):
            copy, to = _copied(fd, folder / path.parent.name / path.name)
            _bring(path, copy)
            return Home(copy, to, rescued=True, fate=fate)
    return Home(path, fd, rescued=None, fate=fate)


def told(run: Path, home: Home) -> str:
    """Return the sentence on what became of the folder `run`, and what to do."""
    said = f"{run} was {home.fate} while cells ran, so the run stops"
    before = RunFolder(run)
    left = f"; its raw logs are still in {before.private}" if before.raw_logs() else ""
    if home.rescued is None:
        return f"{said}; its journal could not be copied anywhere{left}"
    so = "what was judged is" if home.rescued else "everything is"
    there = shlex.quote(str(home.run))
    again = f"`hetgpu report {there}` builds its reports, pytest with `--hetgpu-resume={there}` runs the other cells"
    return f"{said}; {so} in {home.run} now: {again}{left}"


@contextmanager
def present(check: Callable[[], None]) -> Iterator[None]:
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


def _fate(fd: int) -> str:
    try:
        return "moved out of reach" if os.fstat(fd).st_nlink else "deleted"
    except OSError:  # its server has forgotten it
        return "deleted"


def _beside(run: Path) -> Iterator[Path]:
    """Give folders that may hold a copy of the run, best first; each is ours alone."""
    for parent in (run.parent, *list(run.parent.parents)[:2], Path(tempfile.gettempdir())):
        folder = parent / f"{run.name.removesuffix(ENDING)}{ENDING}"
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022:
                yield folder


def _copied(fd: int, path: Path) -> tuple[Path, int]:
    """Write what the open file `fd` holds to `path`; return that, and its open file."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    to = os.open(path, flags, 0o600)
    try:
        at = 0
        while piece := os.pread(fd, _PIECE, at):
            at += len(piece)
            while piece:
                piece = piece[os.write(to, piece) :]
        os.fsync(to)
    except BaseException:
        os.close(to)
        path.unlink(missing_ok=True)
        raise
    return path, to


def _bring(before: Path, now: Path) -> None:
    """Move the run's raw logs to its new place. Have `latest` lead there if both are in one folder of reports."""
    run, found = before.parent.parent, now.parent.parent
    with suppress(OSError):
        RunFolder(found).take_private(RunFolder(run))
    if run.parent == found.parent and (run.parent / "latest").is_symlink():
        point_to(found)
