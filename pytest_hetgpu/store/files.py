"""Files and folders: those of a run are created so that only their owner may write to them, whatever the umask.

The umask decides who may read reports. Only the owner may read files with environments or output (`PRIVATE`).

Files that a user names, or that come from another site, are opened here: plain files, and none that makes us wait.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from pytest_hetgpu.errors import UsageError

PRIVATE, READABLE, FOLDER, PRIVATE_FOLDER = 0o600, 0o644, 0o755, 0o700
_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def make_folder(path: Path, below: Path | None = None) -> None:
    """Create a folder and its missing parents. Raises OSError; FileExistsError if a file has that name.

    Never create the folder `below`: a renamed run folder must not reappear empty.
    """
    if path.is_dir():
        return
    if not path.parent.is_dir() and path.parent != below:
        make_folder(path.parent, below)
    path.mkdir(mode=FOLDER, exist_ok=True)


def write_atomically(path: Path, data: bytes, mode: int = READABLE) -> None:
    """Write `data` to `path` in full or not at all; the umask may reduce `mode`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    # An earlier process may have had our number. O_NOFOLLOW: a link planted here is not followed.
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


def refuse_links(run: Path) -> None:
    """Raise UsageError if a run's folder holds a link, a pipe or a device, whose target would be shown.

    Our runs hold none. A run folder received from another person may.
    """
    if not (run / "journal").exists():
        return  # no run: the reader reports that
    for folder, folders, names in os.walk(run):
        for path in (Path(folder, name) for name in (*folders, *names)):
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                what = "a link" if stat.S_ISLNK(mode) else "no file"
                raise UsageError(f"{path} is {what}: a run holds plain files only, and what is behind it is not read")


class NotPlainFile(OSError):
    """Something that is no file, like a named pipe; `strerror` names its kind."""

    def __init__(self, what: str, path: Path) -> None:
        super().__init__(errno.EINVAL, f"it is {what}, not a file", str(path))


def open_input(path: Path) -> BinaryIO:
    """Open a file for reading.

    A pipe that a shell has opened for this process, as `<(command)`, is accepted, too. Raises OSError, and NotPlainFile
    for other pipes, which may have no writer, and for devices, which may have no end.
    """
    _check(path, path.stat().st_mode)
    # Without O_NONBLOCK, a named pipe that replaces the file meanwhile would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _check(path, os.fstat(descriptor).st_mode)
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_input(path: Path) -> bytes:
    """Read a whole file. Raises OSError as `open_input` does."""
    with open_input(path) as file:
        return file.read()


def _check(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode) or (stat.S_ISFIFO(mode) and _is_inherited(path)):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise NotPlainFile(next((words for is_kind, words in _KINDS if is_kind(mode)), "something else"), path)


def _is_inherited(path: Path) -> bool:
    """Return whether a path like /dev/fd/63 leads to a pipe without a name, of which a process has the other end."""
    found = os.path.realpath(path)
    return found.startswith("/proc/") and "/fd/pipe:[" in found
