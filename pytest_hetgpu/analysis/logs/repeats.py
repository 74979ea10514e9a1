"""Lines of a large log that repeat in all but their numbers: parsers get the first of them.

They also get the lines around a new one. A log of thousands of ranks, or of a retry that never ends, holds one message
a million times. Its first occurrences have all that a parser learns from it. Exit codes, signals and ranks count as
new, up to a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from pytest_hetgpu.model.lazy_regex import lazy

_FEWEST = 8
_AROUND = 30
_LONGEST = 1 << 14
_MOST_SHAPES = 10_000
_MOST_BYTES = 3 << 20
_MOST_NUMBERS = 500
_MOST_ALIKE = 2000
# A shape has as many bytes as its line: each digit, and each letter of a hexadecimal number, becomes a zero.
_SHAPE = bytes.maketrans(b"\r123456789abcdef", b"\n" + b"0" * 15)
# Shapes of `exit code`, `signal`, `status`, `errno`, `rank`: a number that follows them may change the meaning.
_TELLING = lazy(
    rb"(?:[Ss]ign0l|[0E]xit(?:00)?|[Ss]t0tus|[0C]o00|[0E]rr(?:no|or)|[Rr]0turn(?:00)?|[Rr]0nk|[Tt]0sk)s?\W{0,3}(0{1,7})\b"
)
# Shapes of this package's own records, each of which counts.
_MARK, _RECORD = b"@h0tgpu:", b'{"t":"'


class Repeats:
    """Filter of repeated lines; `triggered` returns whether a parser wants a line."""

    def __init__(self, triggered: Callable[[bytes], bool]) -> None:
        self._triggered = triggered
        self._settled: set[bytes] = set()
        self._counts: dict[bytes, int] = {}
        self._numbers: dict[bytes, Sequence[slice]] = {}
        self._seen: set[tuple[int, bytes]] = set()
        self._bytes = 0

    def windows(self, block: bytes, at: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a block, from `at` on, that are to be read: offsets of whole lines, in order."""
        lines = block[at:].translate(_SHAPE).split(b"\n")
        if self._settled.issuperset(lines):
            return
        new = set(lines) - self._settled
        # Offsets without the line ends before.
        starts = list(accumulate(map(len, lines), initial=at))
        first = last = 0
        for place, line in enumerate(lines):
            around = self._take(line, block, starts[place] + place) if line in new else None
            if around is None:
                continue
            if place - around > last:
                if last:
                    yield starts[first] + first, min(starts[last] + last, len(block))
                first = place - around
            last = max(last, min(len(lines), place + around + 1))
        if last:
            yield starts[first] + first, min(starts[last] + last, len(block))

    def _take(self, shape: bytes, block: bytes, start: int) -> int | None:
        """Count a line of a shape that is not settled.

        Return how many lines before and after it are to be read with it, None if it need not be read.
        """
        raw = block[start : start + len(shape)]
        if len(shape) > _LONGEST or _MARK in shape or _RECORD in shape:
            return 0 if self._triggered(raw) else None
        count = self._counts.get(shape, 0) + 1
        if count == 1:
            self._bytes += len(shape)
            if len(self._counts) > _MOST_SHAPES or self._bytes > _MOST_BYTES:
                self._forget(len(shape))
        self._counts[shape] = count
        if count < _FEWEST:
            return _AROUND if self._triggered(raw) else None
        if count == _FEWEST:
            wanted = self._triggered(raw)
            numbers = [slice(*found.span(1)) for found in _TELLING.finditer(shape)] if wanted else ()
            if numbers:
                self._numbers[shape] = numbers
            else:
                self._settled.add(shape)
            return _AROUND if wanted else None
        if shape not in self._numbers:
            # It was settled by a line of this block.
            return None
        if count >= _MOST_ALIKE or len(self._seen) >= _MOST_NUMBERS:
            self._settled.add(shape)
        return 0 if self._is_new_number(shape, raw) else None

    def _is_new_number(self, shape: bytes, raw: bytes) -> bool:
        # The hash, as shapes may be long and are forgotten.
        key = hash(shape), b" ".join(raw[part] for part in self._numbers[shape])
        if key in self._seen or len(self._seen) >= _MOST_NUMBERS:
            return False
        self._seen.add(key)
        return self._triggered(raw)

    def _forget(self, size: int) -> None:
        self._settled.clear()
        self._counts.clear()
        self._numbers.clear()
        self._bytes = size
