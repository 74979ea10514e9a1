"""Offsets of some lines of a log, so that a later read of a few lines need not count line ends from its start."""

from __future__ import annotations

from bisect import bisect_left

_MOST = 1024


class LineIndex:
    """Sparse index of a log: line numbers, from 1, each with a byte offset inside or at the start of its line.

    It keeps at most 1024 places. When it is full it drops every second one and keeps fewer of those that follow.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._offsets: list[int] = []
        self._every = 1
        self._skipped = 0

    def add(self, number: int, offset: int) -> None:
        """Add a place; numbers and offsets never decrease."""
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        if len(self._numbers) >= _MOST:
            del self._numbers[::2], self._offsets[::2]
            self._every *= 2
        self._numbers.append(number)
        self._offsets.append(offset)

    def before(self, number: int) -> tuple[int, int]:
        """Return the number and offset of the last place before the line of a number begins, or of the log's start."""
        place = bisect_left(self._numbers, number) - 1
        return (1, 0) if place < 0 else (self._numbers[place], self._offsets[place])
