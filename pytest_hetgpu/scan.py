"""One pass over a log of any size, in which only the lines that somebody listens for cost more than a search.

A log is bytes: NULs, broken UTF-8, carriage returns and endless lines are its ordinary contents.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

CHUNK = 1 << 20
LONGEST_LINE = 1 << 16
TAIL_LINES = 40
LONGEST_TAIL_LINE = 1000
TAIL_BYTES = 1 << 18

# How common a byte is in logs, the commonest first; bytes that are not in it are rarer still.
_COMMON = b" etaoinsrhldcumfpgwybvk0123456789.,:-_/=()[]'\"TASIECRNOMPDLUBFHGWVYKxjqzX"


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end, or a piece of one that is too long; `number` counts line feeds from 1."""

    raw: bytes
    number: int

    @property
    def text(self) -> str:
        """The line as text, without NULs; what is no UTF-8 is replaced."""
        return self.raw.decode(errors="replace").replace("\0", "")


@dataclass(slots=True)
class Ear:
    """Somebody who wants the lines that hold one of `triggers`, and `context` lines after each of them."""

    triggers: Sequence[bytes]
    take: Callable[[Line], None]
    context: int = 0
    pending: int = field(default=0, init=False)
    pattern: re.Pattern[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.pattern = any_of(self.triggers)

    def wants(self, raw: bytes, hit: bool) -> bool:
        """Whether the next line is one to take; `hit` says whether it holds any ear's trigger."""
        if hit and self.pattern.search(raw):
            self.pending = self.context
            return True
        self.pending -= (wanted := self.pending > 0)
        return wanted


def any_of(words: Iterable[bytes]) -> re.Pattern[bytes]:
    """A pattern that is found wherever one of the words is, and far sooner than their plain alternation.

    It looks for the rarest byte of each word and only then at what stands around it, so that it stops at few places of
    ordinary text (146 against 23 MB/s for 48 words). Words must not be empty nor hold line ends; none match nothing.
    """
    return _any_of(tuple(words))


@lru_cache(maxsize=256)
def _any_of(words: tuple[bytes, ...]) -> re.Pattern[bytes]:
    at_byte: dict[bytes, set[bytes]] = defaultdict(set)
    for word in words:
        place = max(range(len(word)), key=lambda i: (_rarity(word[i]), -i))
        before, rest = re.escape(word[: place + 1]), re.escape(word[place + 1 :])
        at_byte[word[place : place + 1]].add((b"(?<=%b)%b" % (before, rest)) if place else rest)
    parts = (b"%b(?:%b)" % (re.escape(byte), b"|".join(sorted(tails))) for byte, tails in sorted(at_byte.items()))
    return re.compile(b"|".join(parts) or rb"(?!)")


def _rarity(byte: int) -> int:
    place = _COMMON.find(bytes((byte,)))
    return place if place >= 0 else len(_COMMON)


class Scan:
    """Feeds ears from blocks of whole lines; `tail` keeps the last lines."""

    def __init__(self, ears: Sequence[Ear]) -> None:
        self._ears = ears
        self._pattern = any_of(trigger for ear in ears for trigger in ear.triggers)
        self._number = 1
        self._tail = b""

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines, as a terminal would show them: of a line written over, what came last."""
        lines = self._tail.strip(b"\0\r\n").split(b"\n")[-TAIL_LINES:]
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
                rest = self._lines(rest + chunk)
            if rest:
                self._block(rest)

    def _lines(self, block: bytes) -> bytes:
        """Takes the whole lines of a block, and of an endless line whole pieces; returns what is left."""
        end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        end += (len(block) - end) // LONGEST_LINE * LONGEST_LINE
        self._block(block[:end])
        return block[end:]

    def _block(self, block: bytes) -> None:
        at = 0
        while at < len(block):
            if not any(ear.pending for ear in self._ears):
                hit = self._pattern.search(block, at)
                start = _line_start(block, at, hit.start()) if hit else len(block)
                self._number += block.count(b"\n", at, start)
                at = start
            if at < len(block):
                at = self._one(block, at)
        self._tail = (self._tail + block[-TAIL_BYTES:])[-TAIL_BYTES:]

    def _one(self, block: bytes, at: int) -> int:
        """Gives the line at `at` to the ears that want it, and returns where the next begins."""
        end = _line_end(block, at)
        raw = block[at:end]
        if raw:
            line, hit = Line(raw, self._number), bool(self._pattern.search(raw))
            for ear in self._ears:
                if ear.wants(raw, hit):
                    ear.take(line)
        ended_by = block[end : end + 1]
        self._number += ended_by == b"\n"
        return end + (ended_by in (b"\n", b"\r"))


def _line_start(block: bytes, low: int, high: int) -> int:
    return max(block.rfind(b"\n", low, high), block.rfind(b"\r", low, high), low - 1) + 1


def _line_end(block: bytes, at: int) -> int:
    """The end of the line at `at`: its line feed or carriage return, or where it gets too long."""
    limit = min(len(block), at + LONGEST_LINE)
    feed = block.find(b"\n", at, limit)
    limit = limit if feed < 0 else feed
    back = block.find(b"\r", at, limit)
    return limit if back < 0 else back
