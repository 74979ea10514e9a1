"""Rows of lines that hold one of some words, passed over as a whole: in debug logs most lines are nobody's.

RE2 passes over a row in one search; where it is not installed, line after line gives the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from pytest_hetgpu.model.multi_pattern import BytesPattern, automaton


class Unheard:
    """Lines that hold one of `words`; carriage returns and line feeds end them."""

    def __init__(self, words: Sequence[bytes]) -> None:
        self.words = tuple(words)
        self._row = _row(self.words)

    def past(self, block: bytes, at: int, end: int) -> int:
        """Where the row of such lines ends that begins at `at`; `at` itself where there is none.

        Lines that are not ended before `end` do not count; empty lines behind one of the row do.
        """
        if not self.words:
            return at
        if self._row is None:
            return self._line_by_line(block, at, end)
        found = self._row.match(block, at, end)
        return found.end() if found else at

    def _line_by_line(self, block: bytes, at: int, end: int) -> int:
        while True:
            feed = block.find(b"\n", at, end)
            back = block.find(b"\r", at, end if feed < 0 else feed)
            limit = feed if back < 0 else back
            if limit < 0 or not any(block.find(word, at, limit) >= 0 for word in self.words):
                return at
            at = limit + 1
            while block[at : at + 1] in (b"\n", b"\r") and at < end:
                at += 1


@lru_cache(maxsize=8)
def _row(words: tuple[bytes, ...]) -> BytesPattern | None:
    """A pattern of whole rows, None without RE2: `re` would go back and forth in each line."""
    alternatives = b"|".join(map(re.escape, words))
    return automaton(rb"(?:[^\r\n]*(?:%b)[^\r\n]*[\r\n]+)+" % alternatives)
