"""Opens files that a user names, or that come from another site: plain files, and never one that makes us wait."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


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
