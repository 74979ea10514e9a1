"""Performance references of the matrix, and thresholds of a run's points. Pure.

A share is written 0.1 for 10 %; sizes are in bytes, and each value is in the unit of its metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_hetgpu.model.quantities import HIGHER
from pytest_hetgpu.model.records import MessagePoint

TOLERANCE = 0.1
"""Default share by which a number may be worse than expected."""
SPEEDS = ("fabric", "wire")
"""Bases of a fraction besides another cell."""
EVERY = MessagePoint(-1, "")
"""Key of the limits for every point of a metric, if a program's points are known only after its run."""


@dataclass(frozen=True, slots=True)
class PerformanceReference:
    """An expected performance of a cell. It has either `numbers` or a `fraction` of another performance.

    Attributes:
        origin: position in the matrix as `FILE:LINE`.
        metric: metric of the numbers; of a fraction the only metric that counts, "" for all.
        numbers: values of `metric`, in its unit, by size (0: every size).
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
    """The limit for a metric at one point, or (`EVERY`) at all its points of at least `min_size`.

    Attributes:
        metric: metric that it limits, "" if there is nothing to compare with.
        source: origin of the limit.
        values: one expected number, or several measured ones, in `unit`.
        unit: unit of the values, "" if it is that of the metric.
        better: `lower` or `higher`: less or more of the metric is better. "" until the run shows it.
        tolerance: accepted deterioration as a share of the value.
        lacks: reason why there are no values; the comparison is impossible then.
        owed: without the comparison the run has not passed.
        tool: program, with version, that measured the values, if it is not ours.
        min_size: smallest size that it applies to.

    """

    metric: str
    source: str
    values: tuple[float, ...] = ()
    unit: str = ""
    better: str = ""
    tolerance: float = TOLERANCE
    lacks: str = ""
    owed: bool = True
    tool: str = ""
    min_size: int = 0

    def cost(self, value: float) -> float:
        """Convert a value above 0 to a cost, of which less is better: a rate's is the time of one unit of it."""
        return 1 / value if self.better == HIGHER else value

    def value(self, cost: float) -> float:
        """Convert a cost to a value: the inverse of `cost`."""
        return self.cost(cost)

    def worst(self, cost: float) -> float:
        """Return the highest cost that is still within the tolerance of `cost`."""
        return cost / (1 - self.tolerance) if self.better == HIGHER else cost * (1 + self.tolerance)
