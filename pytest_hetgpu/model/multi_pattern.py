"""Search for many fixed words in bytes in a single pass.

RE2 makes one automaton of all words. Without RE2, `re` finds the same words more slowly.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

# Bytes for the automaton's states. With 64 MB RE2 would also build one for anchored matches, in twice the time.
_MEMORY = 32 << 20
_MOST_SHAPES = 4096
_LONGEST_SHAPE = 1000
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
# A number that ends inside a word keeps its letters, as they may belong to another word.
_ADDRESS = re.compile(rb"0x[0-9a-f]+\b")
_HEXADECIMAL = re.compile(rb"[0-9a-f]")
_VARYING = re.compile(rb"\d|^x?[a-f]+\b")


class BytesMatch(Protocol):
    """The common interface of matches of `re` and RE2."""

    def start(self) -> int:
        """Return the start offset of the match."""

    def end(self) -> int:
        """Return the end offset of the match."""


class BytesPattern(Protocol):
    """The common interface of patterns of `re` and RE2."""

    def search(self, text: bytes, pos: int = 0, /) -> BytesMatch | None:
        """Return the first match from `pos` on."""

    def match(self, text: bytes, pos: int, endpos: int, /) -> BytesMatch | None:
        """Return the match at `pos`, of a text that ends at `endpos`."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The words of lines that differ in numbers only: `surely` in each line, `perhaps` in some."""

    surely: frozenset[bytes]
    perhaps: tuple[bytes, ...]

    def words(self, text: bytes) -> frozenset[bytes]:
        """Return the words of such a line."""
        more = [word for word in self.perhaps if word in text]
        return self.surely.union(more) if more else self.surely


class MultiPatternMatcher:
    """A set of non-empty words. `find_first` searches for `words`, `find_all` for `words` and `others`.

    Most lines of a log differ from others in their numbers only. So the words of one line are cached for all lines of
    its shape. Words that contain digits, or begin like the end of an address, are searched each time.
    """

    def __init__(self, words: Iterable[bytes], others: Iterable[bytes] = ()) -> None:
        self.words = frozenset(words)
        self._sorted = sorted(self.words)
        self.pattern = any_of(self.words)
        self._others = tuple(others)
        self._inside: dict[bytes, tuple[bytes, ...]] = {}
        self._begun: dict[bytes, int] = {}
        varying = filter(_VARYING.search, (*self.words, *self._others))
        # Each with its longest part that all lines of a shape share.
        self._varying = {word: max(_HEXADECIMAL.split(word), key=len) for word in varying}
        self._shapes: dict[bytes, _Shape] = {}

    def find_first(self, text: bytes, start: int = 0) -> int | None:
        """Return the start of the first word from `start` on, None without one."""
        found = self.pattern.search(text, start)
        return found.start() if found else None

    def find_all(self, text: bytes) -> frozenset[bytes]:
        """Return all words in the text, overlapping ones too."""
        if len(text) > _LONGEST_SHAPE:
            return frozenset(self._found(text))
        shape = _shape(text)
        return (self._shapes.get(shape) or self._learned(shape, text)).words(text)

    def cached(self, text: bytes) -> frozenset[bytes] | None:
        """Return the cached result of `find_all` for a text that differs in numbers only, None without one."""
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
        """Return the words inside a word, itself included. The search finds only the longest word at each position."""
        if word not in self._inside:
            self._inside[word] = tuple(part for part in self.words if part in word)
        return self._inside[word]

    def _overlap(self, word: bytes) -> int:
        """Return how many of a word's last bytes may begin another, longer word."""
        if word not in self._begun:
            ends = (length for length in range(len(word) - 1, 0, -1) if self._begins(word[-length:]))
            self._begun[word] = next(ends, 0)
        return self._begun[word]

    def _begins(self, end: bytes) -> bool:
        """Return whether a longer word begins like this. Such words follow it in sorted order."""
        after = bisect_right(self._sorted, end)
        return after < len(self._sorted) and self._sorted[after].startswith(end)


def _shape(text: bytes) -> bytes:
    return (_ADDRESS.sub(b"0x0", text) if b"0x" in text else text).translate(_DIGITS)


def any_of(words: Iterable[bytes]) -> BytesPattern:
    """Return a pattern that matches any of the words, the longest one at a position. No words match nothing."""
    return _any_of(tuple(sorted(set(words))))


@lru_cache(maxsize=256)
def _any_of(words: tuple[bytes, ...]) -> BytesPattern:
    """Return the pattern of sorted words.

    In reverse order a word precedes those that it begins with. So the first alternative is the longest one, and RE2
    still joins common prefixes.
    """
    if not words:
        return re.compile(rb"(?!)")
    expression = b"|".join(map(_quoted, reversed(words)))
    longest_first = sorted(words, key=len, reverse=True)
    return automaton(expression, longest=False) or re.compile(b"|".join(map(re.escape, longest_first)))


def automaton(expression: bytes, *, longest: bool = True) -> BytesPattern | None:
    """Return RE2's pattern of an expression; None if RE2 is not installed.

    At a position it matches the longest text, or the first alternative that matches. The latter has fewer states.
    """
    try:
        import re2
    except ImportError:
        return None
    options = re2.Options()
    options.max_mem = _MEMORY if longest else _MEMORY // 2
    options.encoding = re2.Options.Encoding.LATIN1
    options.longest_match = longest
    options.log_errors = False  # otherwise each search that needs more memory prints a line on stderr
    found: BytesPattern = re2.compile(expression, options)
    return found


def _quoted(word: bytes) -> bytes:
    """Quote a word for RE2. RE2 reads `re.escape`d text more slowly."""
    return re.escape(word) if b"\\" in word else b"\\Q%b\\E" % word
