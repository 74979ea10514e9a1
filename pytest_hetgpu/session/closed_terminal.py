"""Output to a closed terminal, or to a pipe without a reader, must not cost a run its regular end."""

from __future__ import annotations

import os
import select
from contextlib import suppress

_GONE = select.POLLHUP | select.POLLERR


class OutputStreams:
    """The standard output and error of this process, under all numbers that these files are open later.

    `maybe_broken` is True once a signal has come: it may have ended their readers, too.
    """

    def __init__(self) -> None:
        self.maybe_broken = False
        self._files = {identity for number in (1, 2) if (identity := _identity(number))}

    def expect_broken(self) -> None:
        """Record that a signal has come."""
        self.maybe_broken = True

    def detach_broken(self) -> None:
        """Redirect broken streams to /dev/null. Without it, printing would raise an error."""
        for number in _open():
            if _identity(number) in self._files and _is_dead(number):
                null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                os.dup2(null, number, inheritable=number < 3)
                os.close(null)


def _open() -> list[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208 - numbers, not paths
    return [1, 2]


def _identity(number: int) -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.fstat(number)
        return found.st_dev, found.st_ino
    return None


def _is_dead(number: int) -> bool:
    poll = select.poll()
    poll.register(number, 0)
    with suppress(OSError):
        return any(event & _GONE for _, event in poll.poll(0))
    return False
