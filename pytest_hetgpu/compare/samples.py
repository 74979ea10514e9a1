"""What several runs measured of one thing, as one number with its spread. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FENCE = 1.5
"""A value further than so many inter-quartile ranges below the first or above the third quartile is an outlier."""
FEWEST = 4
"""Of fewer values none can be told to be an outlier."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The median of the values that are no outliers, the lowest and highest of them, and how many were which."""

    middle: float
    low: float
    high: float
    values: int = 1
    outliers: int = 0


def usable(value: float) -> bool:
    """Whether this can be a latency or a bandwidth."""
    return math.isfinite(value) and value >= 0


def sample(values: Iterable[float]) -> Sample | None:
    """The values that are numbers, as one; None where none is."""
    found = sorted(filter(usable, values))
    kept = _without_outliers(found)
    if not kept:
        return None
    return Sample(_median(kept), kept[0], kept[-1], len(kept), len(found) - len(kept))


def _median(ordered: Sequence[float]) -> float:
    """Not of the library: half the sum of two numbers as large as can be would be infinite."""
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low + (high - low) / 2


def _without_outliers(ordered: Sequence[float]) -> Sequence[float]:
    if len(ordered) < FEWEST:
        return ordered
    first, _, third = statistics.quantiles(ordered, n=4, method="inclusive")
    reach = FENCE * (third - first)
    # So written that quartiles beyond all numbers leave everything in.
    return [value for value in ordered if not (value < first - reach or value > third + reach)]
