"""The records of ranks: lines of ASCII on standard output, `@hetgpu:LLLL:CCCCCCCC:PAYLOAD`.

PAYLOAD is a JSON object of at most 4000 bytes. LLLL is its length in decimal, and CCCCCCCC its CRC-32 in hexadecimal
digits. So a reader recognises a record that a launcher has cut or mixed with other output. `at` of a record is its
time, by the clock of its node. Needs nothing but Python 3.8.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
import zlib
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple

STDOUT = 1
LONGEST_PAYLOAD = 4000
POINTS_PER_RECORD = 50
PLACES = {"false": ("",), "true": ("in",), "both": ("", "in")}


class SweepPoint(NamedTuple):
    """One measured point: bytes, name of the element type, and `in` if it is in place."""

    size: int
    dtype: str
    place: str = ""

    def fields(self) -> Dict[str, Any]:
        """Return the fields of a record; a point that is not in place has no `place`."""
        return {"size": self.size, "dtype": self.dtype, **({"place": self.place} if self.place else {})}


def now() -> float:
    """Return seconds since 1970 by this node's clock, to the millisecond: the `at` of a record."""
    return round(time.time(), 3)


def emit(**record: Any) -> None:
    """Write one record by one system call. Raises ValueError if the payload is too long."""
    payload = json.dumps(record, separators=(",", ":")).encode("ascii")
    if len(payload) > LONGEST_PAYLOAD:
        raise ValueError(f"a record of {len(payload)} bytes, more than {LONGEST_PAYLOAD}: {payload[:80]!r}...")
    line = b"@hetgpu:%04d:%08x:%b\n" % (len(payload), zlib.crc32(payload), payload)
    while line:
        line = line[os.write(STDOUT, line) :]


class Timing(NamedTuple):
    """One timing: the operation, the number of ranks and of timed iterations, and the repeat."""

    operation: str
    ranks: int
    iterations: int
    repeat: int


def emit_row(timing: Timing, point: SweepPoint, seconds: List[float]) -> None:
    """Report the duration of an operation at a point: `seconds` per operation on each rank."""
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


class WrongElements(NamedTuple):
    """Wrong elements of a buffer (`sent`, "" for the result): their number, and the first one.

    `iteration` counts from 0 within the repeat.
    """

    buffer: str
    count: int
    elements: int  # of the buffer
    index: int
    expected: Any
    got: Any
    iteration: int = 0


def emit_wrong(rank: int, point: SweepPoint, repeat: int, wrong: WrongElements) -> None:
    """Report wrong elements at a point."""
    emit(
        t="wrong",
        rank=rank,
        **point.fields(),
        **({"buffer": wrong.buffer} if wrong.buffer else {}),
        index=wrong.index,
        elements=wrong.elements,
        expected=str(wrong.expected),
        got=str(wrong.got),
        count=wrong.count,
        repeat=repeat,
        iteration=wrong.iteration,
    )


def emit_checks(rank: int, wrong: Mapping[SweepPoint, int]) -> None:
    """Report the points that a rank has verified, as `[size, dtype, wrong elements]`, with a place if there is one."""
    checks = [[point.size, point.dtype, count, *filter(None, [point.place])] for point, count in wrong.items()]
    for start in range(0, len(checks), POINTS_PER_RECORD):
        emit(t="check", rank=rank, points=checks[start : start + POINTS_PER_RECORD])


def version_line(text: str) -> str:
    """Return the version text of a library as one line, cut to the size of a record."""
    return " ".join(text.replace("\0", " ").split())[:120]


def library_path(handle: ctypes.CDLL) -> str:
    """Return the real path of the MPI that a library calls: the mapping that holds the address of its function."""
    address = ctypes.cast(handle.MPI_Get_library_version, ctypes.c_void_p).value or 0
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        low, high = (int(bound, 16) for bound in fields[0].split("-"))
        if low <= address < high:
            return os.path.realpath(fields[5])
    return ""


def positive_numbers(text: str) -> List[int]:
    """Parse `8,1024` into numbers."""
    numbers = [int(word) for word in text.split(",")]
    if min(numbers) < 1:
        raise ValueError(text)
    return numbers
