"""Blocks of a large log that hold no text of interest: one search passes over them for all who look for texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_hetgpu.model.multi_pattern import any_of

_MOST_IN_VAIN = 16


class QuietBlocks:
    """The blocks, in order, without any of `words`.

    The search ends once most blocks hold a word: it costs more than it saves then.
    """

    def __init__(self, words: Iterable[bytes]) -> None:
        self._pattern = any_of(words)
        self._quiet: list[tuple[int, int]] = []
        self._in_vain = 0

    def is_quiet(self, block: bytes, start: int) -> bool:
        """Return whether a block, which begins at this byte of the log, holds none of the words."""
        if self._in_vain > _MOST_IN_VAIN or b"\x1b" in block or self._pattern.search(block):
            self._in_vain += 1
            return False
        self._in_vain = 0
        if self._quiet and self._quiet[-1][1] == start:
            start = self._quiet.pop()[0]
        self._quiet.append((start, start + len(block)))
        return True

    def parts(self, size: int) -> Sequence[tuple[int, int]]:
        """Return the ranges of bytes of the other blocks, of a log with so many bytes."""
        ends = [0, *(end for _, end in self._quiet)]
        starts = [*(start for start, _ in self._quiet), size]
        return [(end, start) for end, start in zip(ends, starts, strict=True) if end < start]
