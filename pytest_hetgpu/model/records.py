"""What ranks print about themselves and their measurements, as plain records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MessagePoint:
    """One measured point: message size in bytes, element type, and `in` as `place` where the operation is in place.

    What moves no data has one point, of size 0 and dtype `none`.
    """

    size: int
    dtype: str
    place: str = ""

    def __str__(self) -> str:
        return ",".join(filter(None, (str(self.size), self.dtype, self.place)))


@dataclass(frozen=True, slots=True)
class Hello:
    """What one rank said of itself when it started; `node` is the index of its node in the job, where it knows that.

    `at` is when, in seconds since 1970 by the clock of its node; None for a rank that did not say.
    """

    rank: int
    size: int
    host: str
    pid: int
    library: str
    libmpi: str
    node: int | None = None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """The accelerator that a rank used: `memory` it has, and at most was allocated by the rank (`peak`), in bytes."""

    rank: int
    index: int
    name: str
    arch: str
    memory: int
    peak: int


@dataclass(frozen=True, slots=True)
class Row:
    """One timed point as rank 0 printed it: seconds for one operation, mean over iterations and ranks.

    `repeat` counts the times that the point was come back to.
    """

    operation: str
    point: MessagePoint
    ranks: int
    iterations: int
    seconds: float
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """`metric` is latency (us), algbw or busbw (GB/s, 1e9 bytes a second), or what a program calls its own figure.

    Where it was measured several times `samples` has all values, and `value` is the median of those that are no
    outliers.
    """

    metric: str
    value: float
    unit: str
    point: MessagePoint
    ranks: int
    samples: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """`busbw[1048576,float32]`, in place `busbw[1048576,float32,in]`: the name it has in reports."""
        return f"{self.metric}[{self.point}]"


@dataclass(frozen=True, slots=True)
class RankExit:
    """How a launcher said that a rank ended: by `signal`, with `code`, or by calling abort."""

    rank: int
    signal: int | None = None
    code: int | None = None
    aborted: bool = False
