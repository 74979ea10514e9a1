"""Performance references of the matrix, and thresholds of a run's points. Pure.

A share is written 0.1 for 10 %; bandwidths are in GB/s (1e9 B/s), latencies in us, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TOLERANCE = 0.1
"""Default share by which a number may be worse than expected."""
BANDWIDTHS = ("busbw", "algbw")
SPEEDS = ("fabric", "wire")
"""Bases of a fraction besides another cell."""


@dataclass(frozen=True, slots=True)
class PerformanceReference:
    """An expected performance of a cell. It has either `numbers` or a `fraction` of another performance.

    Attributes:
        origin: position in the matrix as `FILE:LINE`.
        numbers: values of `metric` by size (0: every size).
        of: base of the fraction: one of `SPEEDS`, or `cell`.
        cell: id of the cell of this matrix that is the base.
        min_size: smallest size that it applies to.
        efficiency: least parallel efficiency that `fraction` was made from, 0 for another fraction.

    """

    origin: str
    metric: str = ""
    numbers: Mapping[int, float] = field(default_factory=dict)
    of: str = ""
    cell: str = ""
    fraction: float = 1.0
    min_size: int = 0
    tolerance: float = TOLERANCE
    efficiency: float = 0.0


@dataclass(frozen=True, slots=True)
class Threshold:
    """The limit for the times of one point.

    Attributes:
        metric: metric for the report.
        source: origin of the limit.
        seconds: time of one operation: one number, or several measured ones.
        tolerance: accepted deterioration: less bandwidth, or more latency, as `metric` is.
        lacks: reason why there are no seconds; the comparison is impossible then.
        owed: without the comparison the run has not passed.
        tool: program, with version, that measured the seconds, if it is not ours.

    """

    metric: str
    source: str
    seconds: tuple[float, ...] = ()
    tolerance: float = TOLERANCE
    lacks: str = ""
    owed: bool = True
    tool: str = ""

    def worst(self, seconds: float) -> float:
        """Return the longest time that is still within the tolerance of `seconds`."""
        if self.metric in BANDWIDTHS:
            return seconds / (1 - self.tolerance)
        return seconds * (1 + self.tolerance)
