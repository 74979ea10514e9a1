"""One pass over a log of any size, in which only the lines that somebody listens for cost more than a search.

A log is bytes: NULs, broken UTF-8, carriage returns and endless lines are its ordinary contents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_hetgpu.analysis.logs.colours import Coloured, without_colours
from pytest_hetgpu.analysis.logs.lines import parsed
from pytest_hetgpu.analysis.logs.unheard import Unheard
from pytest_hetgpu.extensions.signatures.base import LogLine
from pytest_hetgpu.model.multi_pattern import MultiPatternMatcher

CHUNK = 1 << 20
LONGEST_LINE = 1 << 16
TAIL_LINES = 40
LONGEST_TAIL_LINE = 1000
TAIL_BYTES = 1 << 18
HEAD_BYTES = 1 << 17
_MOST_BETWEEN = 100
_MOST_KNOWN = 10_000
_LINE_FEED = 10


@dataclass(slots=True)
class Line:
    """A line without its end, or a piece of one that is too long; `number` counts line feeds from 1."""

    raw: bytes
    number: int
    _said: LogLine | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def said(self) -> LogLine:
        """The line as dialects read it; parsed once for all of them."""
        if self._said is None:
            self._said = parsed(self.raw, self.number)
        return self._said

    @property
    def text(self) -> str:
        """The line as text, without NULs and colours; what is no UTF-8 is replaced."""
        return without_colours(self.raw).decode(errors="replace").replace("\0", "")


@dataclass(slots=True)
class Ear:
    """Somebody who wants the lines that hold one of `triggers`, and `context` lines after each of them."""

    triggers: Sequence[bytes]
    take: Callable[[Line], None]
    context: int = 0
    pending: int = field(default=0, init=False)


class Scan:
    """Feeds ears from blocks of whole lines; `head` and `tail` keep the first and last lines, `lines` counts all.

    A line that holds one of the words `unheard` is nobody's, nor of anybody's context, which a long row of them ends.
    """

    def __init__(self, ears: Sequence[Ear], unheard: Sequence[bytes] = ()) -> None:
        self._ears = ears
        self._unheard = Unheard(unheard)
        self._words = MultiPatternMatcher((trigger for ear in ears for trigger in ear.triggers), unheard)
        self._listening: dict[bytes, list[int]] = {word: [] for word in self._words.words}
        for place, ear in enumerate(ears):
            for trigger in dict.fromkeys(ear.triggers):
                self._listening[trigger].append(place)
        # Places of ears: of those that want more lines, and of those that want a line with these words; None if nobody.
        self._pending: set[int] = set()
        self._wanted: dict[frozenset[bytes], frozenset[int] | None] = {}
        self._passed = 0
        self._number = 1
        self._head = b""
        self._tail = b""

    @property
    def lines(self) -> int:
        """How many lines there were; a last one without an end counts."""
        return self._number - (self._tail[-1:] in (b"\n", b""))

    @property
    def head(self) -> tuple[str, ...]:
        """The first lines, as far as HEAD_BYTES go."""
        return tuple(Line(raw[:LONGEST_TAIL_LINE], 0).text for raw in self._head.splitlines())

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines, as a terminal would show them: of a line written over, what came last."""
        lines = self._tail[-TAIL_BYTES:].strip(b"\0\r\n").split(b"\n")[-TAIL_LINES:]
        shown = (line.rstrip(b"\r").rpartition(b"\r")[2][:LONGEST_TAIL_LINE] for line in lines)
        return tuple(Line(raw, 0).text for raw in shown) if lines != [b""] else ()

    def file(self, path: Path) -> None:
        """Reads a file from its beginning to its end; a missing one is empty. Memory: two chunks, whatever the size."""
        try:
            log = path.open("rb", buffering=0)
        except FileNotFoundError:
            return
        with log:
            rest = b""
            while chunk := log.read(CHUNK):
                rest = self._lines(rest, chunk)
            if rest:
                self._block(rest)

    def _lines(self, rest: bytes, chunk: bytes) -> bytes:
        """Takes whole lines, and of an endless line whole pieces; returns what is left. `rest` holds no line end."""
        ended = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        start = ended or -len(rest)
        end = start + (len(chunk) - start) // LONGEST_LINE * LONGEST_LINE
        if end <= 0:
            return rest + chunk
        self._block(b"".join((rest, memoryview(chunk)[:end])))
        return chunk[end:]

    def _block(self, given: bytes) -> None:
        coloured, at, flood = Coloured(given), 0, False
        block = coloured.plain
        while at < len(block):
            # Behind a line that somebody wanted more may come, which need no search.
            if (flood or self._pending) and (after := self._alike(coloured, at)) > at:
                at = after
                continue
            if not self._pending:
                at = self._to_a_hit(block, at)
            # A row that is no longer than a line holds none that is cut into pieces.
            row = self._unheard.past(block, at, at + LONGEST_LINE + 1)
            flood = row == at
            if row > at:
                self._pass_over(block, at, row)
                at = row
            elif at < len(block):
                at = self._one(coloured, at)
        self._tail = block if len(block) >= TAIL_BYTES else (self._tail + block)[-TAIL_BYTES:]
        if len(self._head) < HEAD_BYTES:
            self._head += block[: HEAD_BYTES - len(self._head)]

    def _to_a_hit(self, block: bytes, at: int) -> int:
        """Where the next line begins that holds a word for somebody, the block's end where there is none."""
        hit = self._words.find_first(block, at)
        start = len(block) if hit is None else _line_start(block, at, hit)
        self._number += block.count(b"\n", at, start)
        return start

    def _alike(self, coloured: Coloured, at: int) -> int:
        """As `_one`, of a line like one that was given before; `at` itself where none was, or nobody wants such."""
        block = coloured.plain
        end = _line_end(block, at)
        if end in (at, len(block)) or end - at >= LONGEST_LINE:
            return at
        words = self._words.cached(block[at:end])
        hit = None if words is None else self._hit(words)
        if hit is None or not (hit or self._pending):
            return at
        self._give(Line(coloured.whole(at, end), self._number), hit)
        self._number += block[end] == _LINE_FEED
        return end + 1

    def _one(self, coloured: Coloured, at: int) -> int:
        """Gives the line at `at` to the ears that want it, and returns where the next begins."""
        block = coloured.plain
        end = _line_end(block, at)
        if end > at:
            hit = self._hit(self._words.find_all(block[at:end]))
            if hit is None:
                self._pass_over(block, at, end)
            else:
                self._give(Line(coloured.whole(at, end), self._number), hit)
        ended_by = block[end : end + 1]
        self._number += ended_by == b"\n"
        return end + (ended_by in (b"\n", b"\r"))

    def _give(self, line: Line, hit: frozenset[int]) -> None:
        self._passed = 0
        for place in sorted(hit | self._pending) if self._pending else sorted(hit):
            ear = self._ears[place]
            ear.pending = ear.context if place in hit else ear.pending - 1
            if ear.pending:
                self._pending.add(place)
            else:
                self._pending.discard(place)
            ear.take(line)

    def _pass_over(self, block: bytes, at: int, end: int) -> None:
        """Counts lines that are nobody's: behind so many of them in a row nobody waits for more."""
        self._number += block.count(b"\n", at, end)
        if not self._pending:
            return
        self._passed += sum(map(bool, block[at:end].replace(b"\r", b"\n").split(b"\n")))
        if self._passed > _MOST_BETWEEN:
            for place in self._pending:
                self._ears[place].pending = 0
            self._pending.clear()

    def _hit(self, words: frozenset[bytes]) -> frozenset[int] | None:
        """The places of the ears that listen for one of these words; None where one of them makes a line nobody's."""
        if words in self._wanted:
            return self._wanted[words]
        nobodys = not words.isdisjoint(self._unheard.words)
        found = None if nobodys else frozenset(place for word in words for place in self._listening[word])
        if len(self._wanted) < _MOST_KNOWN:
            self._wanted[words] = found
        return found


def _line_start(block: bytes, low: int, high: int) -> int:
    return max(block.rfind(b"\n", low, high), block.rfind(b"\r", low, high), low - 1) + 1


def _line_end(block: bytes, at: int) -> int:
    """The end of the line at `at`: its line feed or carriage return, or where it gets too long."""
    limit = min(len(block), at + LONGEST_LINE)
    feed = block.find(b"\n", at, limit)
    limit = limit if feed < 0 else feed
    back = block.find(b"\r", at, limit)
    return limit if back < 0 else back
