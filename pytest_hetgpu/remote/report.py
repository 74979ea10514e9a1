"""What ranks write: lines of ASCII on standard output, `@hetgpu:LLLL:CCCCCCCC:PAYLOAD`.

PAYLOAD is a JSON object of at most 4000 bytes, LLLL its length in decimal and CCCCCCCC its CRC-32 in hexadecimal
digits, so that a reader can tell a whole record from what a launcher has cut or mixed with other output. `at` of a
record is when it was written, by the clock of its node. Needs nothing but Python 3.8.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from typing import Any, Dict, List, NamedTuple, Tuple

STDOUT = 1
LONGEST_PAYLOAD = 4000
POINTS_PER_RECORD = 50
PLACES = {"false": ("",), "true": ("in",), "both": ("", "in")}


class SweepPoint(NamedTuple):
    """One measured point: bytes, name of the element type, and `in` where it is in place."""

    size: int
    dtype: str
    place: str = ""

    def fields(self) -> Dict[str, Any]:
        """As records hold it: what is not in place says nothing of a place."""
        return {"size": self.size, "dtype": self.dtype, **({"place": self.place} if self.place else {})}


def now() -> float:
    """Seconds since 1970 by this node's clock, to the millisecond: the `at` of a record."""
    return round(time.time(), 3)


def emit(**record: Any) -> None:
    """Writes one record by one system call. Raises ValueError for a payload the protocol has no room for."""
    payload = json.dumps(record, separators=(",", ":")).encode("ascii")
    if len(payload) > LONGEST_PAYLOAD:
        raise ValueError(f"a record of {len(payload)} bytes, more than {LONGEST_PAYLOAD}: {payload[:80]!r}...")
    line = b"@hetgpu:%04d:%08x:%b\n" % (len(payload), zlib.crc32(payload), payload)
    while line:
        line = line[os.write(STDOUT, line) :]


class Timing(NamedTuple):
    """One timing: how many timed iterations of which operation by how many ranks, and which repeat it is."""

    operation: str
    ranks: int
    iterations: int
    repeat: int


def emit_row(timing: Timing, point: SweepPoint, seconds: List[float]) -> None:
    """Reports what an operation took at a point: seconds of one operation on each rank."""
    emit(
        t="row",
        op=timing.operation,
        **point.fields(),
        ranks=timing.ranks,
        repeat=timing.repeat,
        iterations=timing.iterations,
        seconds=sum(seconds) / len(seconds),
        min=min(seconds),
        max=max(seconds),
        at=now(),
    )


def emit_wrong(rank: int, point: SweepPoint, buffer: str, count: int, first: Tuple[int, Any, Any]) -> None:
    """Reports wrong elements of a buffer (`sent`, "" for the result), and of the first index, wanted and got."""
    index, expected, got = first
    named = {"buffer": buffer} if buffer else {}
    emit(
        t="wrong",
        rank=rank,
        **point.fields(),
        **named,
        index=index,
        expected=str(expected),
        got=str(got),
        count=count,
    )


def emit_checks(rank: int, checks: List[List[Any]]) -> None:
    """Reports the points that a rank has verified, as `[size, dtype, wrong elements]` or with a place behind them."""
    for start in range(0, len(checks), POINTS_PER_RECORD):
        emit(t="check", rank=rank, points=checks[start : start + POINTS_PER_RECORD])


def positive_numbers(text: str) -> List[int]:
    """`8,1024` as numbers."""
    numbers = [int(word) for word in text.split(",")]
    if min(numbers) < 1:
        raise ValueError(text)
    return numbers
