"""Finds many fixed words in bytes at once, whatever their number.

RE2 makes one automaton of all words; where it is not installed, `re` finds the same, more slowly.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

# In bytes, for the automaton's states. With 64 MB RE2 would also make one for anchored matches, in twice the time.
_MEMORY = 32 << 20


class Match(Protocol):
    """What `re` and RE2 give alike."""

    def start(self) -> int:
        """Where the match begins."""

    def end(self) -> int:
        """Where it ends."""


class Pattern(Protocol):
    """What `re` and RE2 have alike."""

    def search(self, text: bytes, pos: int = 0, /) -> Match | None:
        """The first match from `pos` on."""


class Words:
    """A set of words, none of them empty."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self.words = frozenset(words)
        self._sorted = sorted(self.words)
        self.pattern = any_of(self.words)
        self._inside: dict[bytes, tuple[bytes, ...]] = {}
        self._begun: dict[bytes, int] = {}

    def first(self, text: bytes, start: int = 0) -> int | None:
        """Where the first of the words begins, from `start` on."""
        found = self.pattern.search(text, start)
        return found.start() if found else None

    def within(self, text: bytes) -> set[bytes]:
        """All of the words that the text holds, also where one lies over another."""
        found: set[bytes] = set()
        match = self.pattern.search(text)
        while match:
            start, end = match.start(), match.end()
            word = text[start:end]
            found.update(self._parts(word))
            match = self.pattern.search(text, end - self._overlap(word))
        return found

    def _parts(self, word: bytes) -> tuple[bytes, ...]:
        """The words that a word holds, itself among them: at each place the longest is found."""
        if word not in self._inside:
            self._inside[word] = tuple(part for part in self.words if part in word)
        return self._inside[word]

    def _overlap(self, word: bytes) -> int:
        """How many of a word's last bytes may begin another that is longer than they are."""
        if word not in self._begun:
            ends = (length for length in range(len(word) - 1, 0, -1) if self._begins(word[-length:]))
            self._begun[word] = next(ends, 0)
        return self._begun[word]

    def _begins(self, end: bytes) -> bool:
        after = bisect_right(self._sorted, end)
        return after < len(self._sorted) and self._sorted[after].startswith(end)


def any_of(words: Iterable[bytes]) -> Pattern:
    """A pattern that is found wherever one of the words is, the longest where several begin; none match nothing."""
    return _any_of(tuple(sorted(set(words))))


@lru_cache(maxsize=256)
def _any_of(words: tuple[bytes, ...]) -> Pattern:
    """Of words in their order: RE2 then joins what they have in common, and has a third of the states to make."""
    if not words:
        return re.compile(rb"(?!)")
    try:
        import re2
    except ImportError:
        return re.compile(b"|".join(map(re.escape, sorted(words, key=len, reverse=True))))
    options = re2.Options()
    options.max_mem = _MEMORY
    options.encoding = re2.Options.Encoding.LATIN1
    options.longest_match = True
    found: Pattern = re2.compile(b"|".join(map(_quoted, words)), options)
    return found


def _quoted(word: bytes) -> bytes:
    """The word as RE2 reads it; `re.escape` takes longer than RE2 for the rest."""
    return re.escape(word) if b"\\" in word else b"\\Q%b\\E" % word
