"""A terminal that was closed, or a pipe that nobody reads any more, must not cost a run its orderly end."""

from __future__ import annotations

import os
import select
from contextlib import suppress

_GONE = select.POLLHUP | select.POLLERR


class Outlets:
    """Where this process printed to when this was made, under whatever numbers those files are open later.

    `suspect` is set once a signal has come, which may have ended who reads there, too.
    """

    def __init__(self) -> None:
        self.suspect = False
        self._files = {identity for number in (1, 2) if (identity := _identity(number))}

    def leave_dead(self) -> None:
        """What goes to outlets that are gone goes nowhere from now on; printing would be an error otherwise."""
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
