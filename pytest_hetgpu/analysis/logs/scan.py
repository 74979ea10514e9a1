"""Scan of a log in a single pass; lines without a trigger are skipped unparsed.

A log is bytes: NULs, broken UTF-8, carriage returns and endless lines are ordinary content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_hetgpu.analysis.logs.colours import ColouredBlock, without_colours
from pytest_hetgpu.analysis.logs.line_index import LineIndex
from pytest_hetgpu.analysis.logs.lines import parse_line, without_facts
from pytest_hetgpu.analysis.logs.noise_filter import NoiseFilter
from pytest_hetgpu.extensions.signatures.base import LogLine
from pytest_hetgpu.model.multi_pattern import MultiPatternMatcher

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.logs.quiet_blocks import QuietBlocks
    from pytest_hetgpu.analysis.logs.repeats import Repeats

CHUNK = 1 << 20
LEAST_SIZE = 4 << 20
"""Bytes of a log from which repeated lines are left out; a smaller one is read in full."""
IN_FULL = 1 << 16
"""Last bytes of a log, which are always read in full."""
LONGEST_LINE = 1 << 16
TAIL_LINES = 40
LONGEST_TAIL_LINE = 1000
TAIL_BYTES = 1 << 18
HEAD_BYTES = 1 << 17
_MOST_BETWEEN = 100
_MOST_IN_FULL = 64
_MOST_AFTER = 64
_MOST_KNOWN = 10_000
_LINE_FEED = 10


@dataclass(slots=True)
class ScannedLine:
    """A line without its end, or a piece of one that is too long; `number` counts line feeds from 1."""

    raw: bytes
    number: int
    prefix: re.Pattern[str] | None = field(default=None, repr=False, compare=False)
    _parsed: LogLine | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def parsed(self) -> LogLine:
        """The line as parsers get it; parsed once for all of them."""
        if self._parsed is None:
            self._parsed = parse_line(self.raw, self.number, self.prefix)
        return self._parsed

    @property
    def text(self) -> str:
        """The line as text, without NULs and colours; invalid UTF-8 is replaced."""
        return without_facts(without_colours(self.raw).decode(errors="replace").replace("\0", ""))


@dataclass(slots=True)
class Subscription:
    """Request for lines that hold one of `triggers`, and for `context` lines after each of them."""

    triggers: Sequence[bytes]
    take: Callable[[ScannedLine], None]
    context: int = 0
    pending: int = field(default=0, init=False)


class Scan:
    """Scan that feeds subscriptions; `head` and `tail` keep the first and last lines, `lines` counts all.

    `line_index` has offsets of lines, one a block.

    A line with one of the words `noise` is passed to no subscription. A long block of such lines also ends every
    context. `prefix` is taken off each line that is parsed. Unless `whole` is set, a large log is read without most of
    its repeated lines (`repeats`). Blocks without a trigger and without one of `texts` are passed over.
    """

    def __init__(
        self,
        subscriptions: Sequence[Subscription],
        noise: Sequence[bytes] = (),
        prefix: re.Pattern[str] | None = None,
        *,
        whole: bool = True,
        texts: Iterable[bytes] = (),
    ) -> None:
        self._prefix = prefix
        self._subscriptions = subscriptions
        self._noise = NoiseFilter(noise)
        self._index = _index(tuple(tuple(one.triggers) for one in subscriptions), tuple(noise))
        self._matcher = self._index.matcher
        # Indexes of subscriptions that wait for more lines.
        self._pending: set[int] = set()
        self._passed = 0
        self._given = 0
        self._left = 0
        self._whole = whole
        self._repeats: Repeats | None = None
        self._texts = texts
        self._quiet: QuietBlocks | None = None
        self._is_dense = False
        self._number = 1
        self._read = 0
        self.line_index = LineIndex()
        self._head = b""
        self._tail = b""

    @property
    def lines(self) -> int:
        """Number of lines; a last one without an end counts."""
        return self._number - (without_colours(self._tail)[-1:] in (b"\n", b""))

    @property
    def parts(self) -> Sequence[tuple[int, int]] | None:
        """Ranges of bytes outside of which there is neither a trigger nor a text; None if that is not known."""
        return self._quiet.parts(self._read) if self._quiet is not None else None

    @property
    def head(self) -> tuple[str, ...]:
        """The first lines, up to HEAD_BYTES."""
        return tuple(ScannedLine(raw[:LONGEST_TAIL_LINE], 0).text for raw in self._head.splitlines())

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines, as a terminal shows them: if a line was overwritten, its last version."""
        lines = without_colours(self._tail[-TAIL_BYTES:]).strip(b"\0\r\n").split(b"\n")[-TAIL_LINES:]
        shown = (line.rstrip(b"\r").rpartition(b"\r")[2][:LONGEST_TAIL_LINE] for line in lines)
        return tuple(ScannedLine(raw, 0).text for raw in shown) if lines != [b""] else ()

    def file(self, path: Path) -> None:
        """Read a file from start to end; a missing one is empty. Memory: two chunks, whatever the size."""
        try:
            log = path.open("rb", buffering=0)
        except FileNotFoundError:
            return
        with log:
            self._left = os.fstat(log.fileno()).st_size
            if not self._whole and self._left >= LEAST_SIZE:
                from pytest_hetgpu.analysis.logs.quiet_blocks import QuietBlocks
                from pytest_hetgpu.analysis.logs.repeats import Repeats

                self._repeats = Repeats(self._is_wanted)
                self._quiet = QuietBlocks((*self._matcher.words, *self._texts))
            rest = b""
            while chunk := log.read(CHUNK):
                rest = self._lines(rest, chunk)
            if rest:
                self._block(rest)

    def _lines(self, rest: bytes, chunk: bytes) -> bytes:
        """Scan whole lines, and whole pieces of an endless line; return the rest. `rest` holds no line end."""
        ended = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        start = ended or -len(rest)
        end = start + (len(chunk) - start) // LONGEST_LINE * LONGEST_LINE
        if end <= 0:
            return rest + chunk
        self._block(b"".join((rest, memoryview(chunk)[:end])))
        return chunk[end:]

    def _block(self, block: bytes) -> None:
        self._left -= len(block)
        self.line_index.add(self._number, self._read)
        self._read += len(block)
        if self._quiet is not None and not self._pending and self._quiet.is_quiet(block, self._read - len(block)):
            self._number += block.count(b"\n")
        elif self._repeats is None:
            coloured = ColouredBlock(block)
            block = coloured.plain
            self._feed(coloured, 0, len(block))
        else:
            self._without_repeats(block, self._repeats)
        self._tail = block if len(block) >= TAIL_BYTES else (self._tail + block)[-TAIL_BYTES:]
        if len(self._head) < HEAD_BYTES:
            self._head += without_colours(block)[: HEAD_BYTES - len(self._head)]

    def _without_repeats(self, block: bytes, repeats: Repeats) -> None:
        """Feed a block up to some hits, then its lines that are new, and the last bytes of the log in full."""
        size = len(block)
        at = self._in_full(block) if b"\x1b" not in block else 0
        full = _line_start(block, at, size - max(0, IN_FULL - self._left)) if self._left < IN_FULL else size
        for start, end in repeats.windows(block[:full], at) if at < full else ():
            self._leave_out(block, at, start)
            self._part(block[start:end])
            at = end
        self._leave_out(block, at, full)
        self._part(block[max(at, full) :])

    def _in_full(self, block: bytes) -> int:
        """Feed a block up to some hits, if they are rare; return the offset of the next line.

        RE2 skips lines without a hit at a lower cost than `repeats`.
        """
        size = len(block)
        at = self._to_a_hit(block, 0, size) if self._is_dense and not self._pending else 0
        if not self._is_dense or at > size // 2:
            at = self._feed(ColouredBlock(block), at, size, _MOST_IN_FULL)
            self._is_dense = at < size // 2
        return at

    def _part(self, part: bytes) -> None:
        coloured = ColouredBlock(part)
        self._feed(coloured, 0, len(coloured.plain))

    def _feed(self, coloured: ColouredBlock, at: int, end: int, most: int | None = None) -> int:
        """Feed the lines between two offsets, at most so many; return the offset of the next."""
        block, flood, stop = coloured.plain, False, None if most is None else self._given + most
        # A message of several lines is read to its end.
        while at < end and (stop is None or self._given < stop + bool(self._pending) * _MOST_AFTER):
            # After a wanted line more may follow, which need no search.
            if (flood or self._pending) and (after := self._alike(coloured, at)) > at:
                at = after
                continue
            if not self._pending:
                at = self._to_a_hit(block, at, end)
            # A row that is no longer than a line holds none that is cut into pieces.
            row = min(end, self._noise.past(block, at, at + LONGEST_LINE + 1)) if at < end else at
            flood = row == at
            if row > at:
                self._pass_over(block, at, row)
                at = row
            elif at < end:
                at = self._one(coloured, at)
        return at

    def _is_wanted(self, line: bytes) -> bool:
        return bool(self._hit(self._matcher.find_all(without_colours(line))))

    def _leave_out(self, block: bytes, at: int, end: int) -> None:
        """Count the line ends of repeated lines; no subscription waits for more after them."""
        if end > at:
            self._number += block.count(b"\n", at, end)
            for place in self._pending:
                self._subscriptions[place].pending = 0
            self._pending.clear()

    def _to_a_hit(self, block: bytes, at: int, end: int) -> int:
        """Return the start of the next line before `end` that holds a trigger, or `end`."""
        hit = self._matcher.find_first(block, at)
        start = end if hit is None else min(end, _line_start(block, at, hit))
        self._number += block.count(b"\n", at, start)
        return start

    def _alike(self, coloured: ColouredBlock, at: int) -> int:
        """Feed the line at `at` as `_one` does, if one of the same shape was fed before; else return `at`."""
        block = coloured.plain
        end = _line_end(block, at)
        if end in (at, len(block)) or end - at >= LONGEST_LINE:
            return at
        words = self._matcher.cached(block[at:end])
        hit = None if words is None else self._hit(words)
        if hit is None or not (hit or self._pending):
            return at
        self._give(ScannedLine(coloured.whole(at, end), self._number, self._prefix), hit)
        self._number += block[end] == _LINE_FEED
        return end + 1

    def _one(self, coloured: ColouredBlock, at: int) -> int:
        """Feed the line at `at` to its subscriptions and return the start of the next."""
        block = coloured.plain
        end = _line_end(block, at)
        if end > at:
            hit = self._hit(self._matcher.find_all(block[at:end]))
            if hit is None:
                self._pass_over(block, at, end)
            else:
                self._give(ScannedLine(coloured.whole(at, end), self._number, self._prefix), hit)
        ended_by = block[end : end + 1]
        self._number += ended_by == b"\n"
        return end + (ended_by in (b"\n", b"\r"))

    def _give(self, line: ScannedLine, hit: frozenset[int]) -> None:
        self._passed = 0
        self._given += 1
        for place in sorted(hit | self._pending) if self._pending else sorted(hit):
            subscription = self._subscriptions[place]
            subscription.pending = subscription.context if place in hit else subscription.pending - 1
            if subscription.pending:
                self._pending.add(place)
            else:
                self._pending.discard(place)
            subscription.take(line)

    def _pass_over(self, block: bytes, at: int, end: int) -> None:
        """Count lines of noise; after many of them in a row no subscription waits for more."""
        self._number += block.count(b"\n", at, end)
        if not self._pending:
            return
        self._passed += sum(map(bool, block[at:end].replace(b"\r", b"\n").split(b"\n")))
        if self._passed > _MOST_BETWEEN:
            for place in self._pending:
                self._subscriptions[place].pending = 0
            self._pending.clear()

    def _hit(self, words: frozenset[bytes]) -> frozenset[int] | None:
        """Return the indexes of subscriptions to one of these words; None if one of the words marks noise."""
        wanted = self._index.wanted
        if words in wanted:
            return wanted[words]
        is_noise = not words.isdisjoint(self._noise.words)
        found = None if is_noise else frozenset(place for word in words for place in self._index.subscribers[word])
        if len(wanted) < _MOST_KNOWN:
            wanted[words] = found
        return found


@dataclass(frozen=True, slots=True)
class _SubscriptionIndex:
    """Index of subscriptions with the same triggers, shared by the scans of all logs.

    `subscribers` has the indexes per trigger. `wanted` caches them per set of triggers in a line, None for noise.
    """

    matcher: MultiPatternMatcher
    subscribers: Mapping[bytes, Sequence[int]]
    wanted: dict[frozenset[bytes], frozenset[int] | None] = field(default_factory=dict)


@lru_cache(maxsize=16)
def _index(triggers: tuple[tuple[bytes, ...], ...], noise: tuple[bytes, ...]) -> _SubscriptionIndex:
    """Return the index, made once per set of triggers: logs of one run differ little, and most of them are short."""
    matcher = MultiPatternMatcher((trigger for wanted in triggers for trigger in wanted), noise)
    subscribers: dict[bytes, list[int]] = {word: [] for word in matcher.words}
    for place, wanted in enumerate(triggers):
        for trigger in dict.fromkeys(wanted):
            subscribers[trigger].append(place)
    return _SubscriptionIndex(matcher, subscribers)


def _line_start(block: bytes, low: int, high: int) -> int:
    return max(block.rfind(b"\n", low, high), block.rfind(b"\r", low, high), low - 1) + 1


def _line_end(block: bytes, at: int) -> int:
    """Return the end of the line at `at`: its line feed or carriage return, or the length limit."""
    limit = min(len(block), at + LONGEST_LINE)
    feed = block.find(b"\n", at, limit)
    limit = limit if feed < 0 else feed
    back = block.find(b"\r", at, limit)
    return limit if back < 0 else back
