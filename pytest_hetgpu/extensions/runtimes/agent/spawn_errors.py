"""Explanations of a failed start of a command, for its author: the same on this machine and on a node."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.errors import LaunchError


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The facts about a failed exec.

    `errno` is None for arguments that no exec accepts (a NUL byte). `size` is the bytes of arguments and environment.
    `found` is whether the program is in `path`.
    """

    errno: int | None
    text: str
    size: int
    found: bool
    path: str


def empty() -> LaunchError:
    """Return the error of a command without a program."""
    return LaunchError("cannot start an empty command")


def error(program: str, why: NotStarted) -> LaunchError:
    """Return the error of a `program` that could not be started."""
    if why.errno is None:
        return LaunchError(f"cannot start {program!r}: {why.text} in its arguments or environment")
    return LaunchError(f"cannot start {program}: {_explained(program, why)}")


def _explained(program: str, why: NotStarted) -> str:
    if why.errno == errno.E2BIG:
        return f"arguments and environment take {why.size} bytes, more than the kernel accepts (see `getconf ARG_MAX`)"
    if why.errno == errno.EACCES:
        return "not an executable file (permission denied)"
    if why.errno != errno.ENOENT:
        return why.text
    if why.found:
        return "the interpreter named in its first line is missing"
    return "no such file" if "/" in program else f"no such program in PATH={why.path}"


@contextmanager
def sink(output: Path) -> Iterator[int]:
    """Open the file that a command's output is appended to (mode 0600); raise LaunchError if it cannot be written."""
    try:
        file = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as failure:
        raise LaunchError(f"cannot write the output to {output}: {failure.strerror}") from failure
    try:
        yield file
    finally:
        os.close(file)
