"""Records that ranks print about themselves and their measurements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MessagePoint:
    """One measured point: message size in bytes, element type, and `place`, which is `in` for an in-place operation.

    An operation that moves no data has one point, of size 0 and dtype `none`.
    """

    size: int
    dtype: str
    place: str = ""

    def __str__(self) -> str:
        return ",".join(filter(None, (str(self.size), self.dtype, self.place)))

    @property
    def in_place(self) -> bool:
        """Return whether the operation is in place."""
        return self.place == "in"


@dataclass(frozen=True, slots=True)
class Hello:
    """The greeting of a rank at its start. `node` is the index of its node in the job, None if not known.

    `at` is the time in seconds since 1970 by the clock of its node; None if the rank did not report it.
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

    `repeat` counts the repeats of the point.
    """

    operation: str
    point: MessagePoint
    ranks: int
    iterations: int
    seconds: float
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measured value. `metric` is latency (us), algbw or busbw (GB/s), or a program's own metric.

    `samples` has all values of repeated measurements. `value` is then their median without outliers. `better` is
    `lower` or `higher` if the user states it; else the unit decides.
    """

    metric: str
    value: float
    unit: str
    point: MessagePoint
    ranks: int
    samples: tuple[float, ...] = ()
    better: str = ""

    @property
    def name(self) -> str:
        """Return its name in reports: `busbw[1048576,float32]`, in place `busbw[1048576,float32,in]`."""
        return f"{self.metric}[{self.point}]"


@dataclass(frozen=True, slots=True)
class RankExit:
    """The end of a rank as a launcher reports it: by `signal`, with `code`, or by calling abort."""

    rank: int
    signal: int | None = None
    code: int | None = None
    aborted: bool = False
