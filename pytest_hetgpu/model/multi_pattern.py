"""Finds many fixed words in bytes at once, whatever their number.

RE2 makes one automaton of all words; where it is not installed, `re` finds the same, more slowly.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

# In bytes, for the automaton's states. With 64 MB RE2 would also make one for anchored matches, in twice the time.
_MEMORY = 32 << 20
_MOST_SHAPES = 4096
_LONGEST_SHAPE = 1000
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
# A number that ends in the middle of a word keeps its letters, which may be another's.
_ADDRESS = re.compile(rb"0x[0-9a-f]+\b")
_HEXADECIMAL = re.compile(rb"[0-9a-f]")
_VARYING = re.compile(rb"\d|^x?[a-f]+\b")


class BytesMatch(Protocol):
    """What `re` and RE2 give alike."""

    def start(self) -> int:
        """Where the match begins."""

    def end(self) -> int:
        """Where it ends."""


class BytesPattern(Protocol):
    """What `re` and RE2 have alike."""

    def search(self, text: bytes, pos: int = 0, /) -> BytesMatch | None:
        """The first match from `pos` on."""

    def match(self, text: bytes, pos: int, endpos: int, /) -> BytesMatch | None:
        """The match at `pos`, of a text that ends at `endpos`."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What lines hold that differ in numbers only: `surely` in each, and `perhaps` in some."""

    surely: frozenset[bytes]
    perhaps: tuple[bytes, ...]

    def words(self, text: bytes) -> frozenset[bytes]:
        """What such a line holds."""
        more = [word for word in self.perhaps if word in text]
        return self.surely.union(more) if more else self.surely


class MultiPatternMatcher:
    """A set of words, none of them empty; `first` looks for `words` only, and `within` for `others`, too.

    Most lines of a log differ from others in their numbers only. What was found in one is known of all of its shape,
    but for words that hold digits themselves, or begin with what may be an address's end.
    """

    def __init__(self, words: Iterable[bytes], others: Iterable[bytes] = ()) -> None:
        self.words = frozenset(words)
        self._sorted = sorted(self.words)
        self.pattern = any_of(self.words)
        self._others = tuple(others)
        self._inside: dict[bytes, tuple[bytes, ...]] = {}
        self._begun: dict[bytes, int] = {}
        varying = filter(_VARYING.search, (*self.words, *self._others))
        # With the longest part that is the same in all lines of a shape.
        self._varying = {word: max(_HEXADECIMAL.split(word), key=len) for word in varying}
        self._shapes: dict[bytes, _Shape] = {}

    def first(self, text: bytes, start: int = 0) -> int | None:
        """Where the first of the words begins, from `start` on."""
        found = self.pattern.search(text, start)
        return found.start() if found else None

    def within(self, text: bytes) -> frozenset[bytes]:
        """All of the words that the text holds, also where one lies over another."""
        if len(text) > _LONGEST_SHAPE:
            return frozenset(self._found(text))
        shape = _shape(text)
        return (self._shapes.get(shape) or self._learned(shape, text)).words(text)

    def known(self, text: bytes) -> frozenset[bytes] | None:
        """What `within` gives, if it was asked before for a text that differs in numbers only."""
        shape = self._shapes.get(_shape(text))
        return shape.words(text) if shape else None

    def _learned(self, shape: bytes, text: bytes) -> _Shape:
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        surely = frozenset(word for word in self._found(text) if word not in self._varying)
        perhaps = tuple(word for word, part in self._varying.items() if part in shape)
        learned = self._shapes[shape] = _Shape(surely, perhaps)
        return learned

    def _found(self, text: bytes) -> set[bytes]:
        found = {word for word in self._others if word in text}
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
        """Whether a word begins like this and is longer: sorted, such words follow it."""
        after = bisect_right(self._sorted, end)
        return after < len(self._sorted) and self._sorted[after].startswith(end)


def _shape(text: bytes) -> bytes:
    return (_ADDRESS.sub(b"0x0", text) if b"0x" in text else text).translate(_DIGITS)


def any_of(words: Iterable[bytes]) -> BytesPattern:
    """A pattern that is found wherever one of the words is, the longest where several begin; none match nothing."""
    return _any_of(tuple(sorted(set(words))))


@lru_cache(maxsize=256)
def _any_of(words: tuple[bytes, ...]) -> BytesPattern:
    """Of words in their order: RE2 then joins what they have in common, and has a third of the states to make."""
    if not words:
        return re.compile(rb"(?!)")
    longest_first = sorted(words, key=len, reverse=True)
    return automaton(b"|".join(map(_quoted, words))) or re.compile(b"|".join(map(re.escape, longest_first)))


def automaton(expression: bytes) -> BytesPattern | None:
    """RE2's pattern of an expression, which finds the longest of several matches; None where RE2 is not installed."""
    try:
        import re2
    except ImportError:
        return None
    options = re2.Options()
    options.max_mem = _MEMORY
    options.encoding = re2.Options.Encoding.LATIN1
    options.longest_match = True
    options.log_errors = False  # else a line on stderr per search that needs more memory; it ends all the same
    found: BytesPattern = re2.compile(expression, options)
    return found


def _quoted(word: bytes) -> bytes:
    """The word as RE2 reads it; `re.escape` takes longer than RE2 for the rest."""
    return re.escape(word) if b"\\" in word else b"\\Q%b\\E" % word
