"""Repeated measurements as one number with its spread. Pure.

The rule for outliers is Tukey's fence (Exploratory Data Analysis, 1977). superbench applies it to repeated benchmarks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FENCE = 1.5
"""Outliers are more than this many inter-quartile ranges below the first or above the third quartile."""
FEWEST = 4
"""Fewer values have no outliers."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The median, lowest and highest of the values without outliers, and the numbers of values and of outliers.

    `of` is the unit of repetition: a run, or a repeat of one run.
    """

    middle: float
    low: float
    high: float
    values: int = 1
    outliers: int = 0
    of: str = "run"


def usable(value: float) -> bool:
    """Return whether this can be a latency or a bandwidth."""
    return math.isfinite(value) and value >= 0


def sample(values: Iterable[float]) -> Sample | None:
    """Reduce the finite values to one sample; None without any."""
    found = sorted(filter(usable, values))
    inside = within_fences(found)
    if not inside:
        return None
    return Sample(median(inside), inside[0], inside[-1], len(inside), len(found) - len(inside))


def median(ordered: Sequence[float]) -> float:
    """Return the middle one of ordered values, or the mean of the middle two."""
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    # Half the sum of two huge numbers would be infinite.
    return low + (high - low) / 2


def within_fences(ordered: Sequence[float]) -> Sequence[float]:
    """Return ordered values without their outliers."""
    if len(ordered) < FEWEST:
        return ordered
    first, third = _quartile(ordered, 1), _quartile(ordered, 3)
    reach = FENCE * (third - first)
    # With infinite quartiles this condition keeps every value.
    return [value for value in ordered if not (value < first - reach or value > third + reach)]


def _quartile(ordered: Sequence[float], number: int) -> float:
    """Interpolate a quartile. The lowest value is the quartile 0, the highest the quartile 4."""
    place, quarters = divmod(number * (len(ordered) - 1), 4)
    above = ordered[min(place + 1, len(ordered) - 1)]
    return ordered[place] + (above - ordered[place]) * quarters / 4
