"""Change points in series of nightly values: when a level moved, for how much, and what is no step. Pure.

A scan of all series at once finds the few suspicious ones. `ruptures` searches those, and each candidate is tested.
Values are compared by ratio, so all computation is on logarithms. Needs the extra `history`.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from pytest_hetgpu.analysis.nights import course, levels
from pytest_hetgpu.analysis.nights.prefilter import LEAST, scan, within_reach
from pytest_hetgpu.analysis.nights.records import CourseShape, LevelPair, LevelStep, NightSeries, SeriesChange
from pytest_hetgpu.errors import HetgpuError

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.nights.prefilter import Floats


class MissingExtra(HetgpuError):
    """An optional package that is not installed; the message names the command that installs it."""


def available() -> bool:
    """Return whether the extra `history` is installed."""
    return all(importlib.util.find_spec(name) for name in ("numpy", "scipy", "ruptures"))


def find_changes(series: Sequence[NightSeries]) -> list[SeriesChange]:
    """Return the course of each series, in their order.

    Raises:
        MissingExtra: the extra `history` is not installed.
        ValueError: a value is not positive and finite, or labels and values differ in number.

    """
    if not available():
        raise MissingExtra("change points need numpy and ruptures: pip install 'pytest-hetgpu[history]'")
    import numpy as np

    longest = max((len(one.values) for one in series), default=0)
    nights = np.full((len(series), longest), np.nan)
    for row, one in enumerate(series):
        _check(row, one)
        nights[row, : len(one.values)] = np.array(one.values, dtype=float)
    nights = np.log(nights)
    if not longest:
        return [SeriesChange(CourseShape.TOO_FEW, 0) for _ in series]
    flags, deviations = scan(nights)
    each = zip(nights, series, flags.tolist(), deviations.tolist(), strict=True)
    return [_one(row[: len(one.values)], one, flag, deviation) for row, one, flag, deviation in each]


def _check(row: int, one: NightSeries) -> None:
    for night, value in enumerate(one.values):
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"series {row}, night {night}: {value} is not a positive number")
    for fact, texts in one.labels.items():
        if len(texts) != len(one.values):
            raise ValueError(f"series {row}: {len(one.values)} values, but {len(texts)} labels {fact!r}")


def _one(row: Floats, one: NightSeries, suspicious: bool, deviation: float) -> SeriesChange:
    """Return the course of one series: `row` holds its logarithms, NaN for a missing night."""
    import numpy as np

    known = np.flatnonzero(~np.isnan(row)).tolist()
    logs, values = row[known], [float(value) for value in one.values if value is not None]
    if len(values) < LEAST:
        return SeriesChange(CourseShape.TOO_FEW, len(values), median(values) if values else None)
    labelled = levels.by_label(logs, {fact: [texts[night] for night in known] for fact, texts in one.labels.items()})
    if not suspicious and not labelled:
        return _steady(values, deviation)
    found = course.cuts(logs)
    split = _split(logs, found, labelled)
    if split:
        return _two_levels(values, split)
    return _moved(logs, values, known, found) if found.places else _steady(values, deviation)


def _split(logs: Floats, found: course.Cuts, labelled: levels.Split | None) -> levels.Split | None:
    """Return the split into two levels, if it describes the nights better than the steps found do."""
    import numpy as np

    nights = len(logs)
    if labelled:
        stepped = course.criterion(found.residual, nights, 2 * len(found.places) + 1)
        if course.criterion(labelled.residual, nights, 2) <= stepped:
            return labelled
    reached = within_reach(logs[None, :], np.array([nights]))[0]
    # Nights about a step may alternate, too. Two levels still do so without it.
    rest = levels.by_values(course.without_steps(reached, found.places))
    return levels.by_values(reached) if rest else None


def _moved(logs: Floats, values: Sequence[float], known: Sequence[int], found: course.Cuts) -> SeriesChange:
    """Return a drift or the steps."""
    rise, about = course.line(logs)
    if not course.is_line(about, found, len(logs)):
        return _steps(values, known, found)
    noise = math.sqrt(about / (len(logs) - 2))
    return SeriesChange(CourseShape.DRIFT, len(logs), median(values), noise, drift=math.exp(rise))


def _steady(values: Sequence[float], deviation: float) -> SeriesChange:
    return SeriesChange(CourseShape.STEADY, len(values), median(values), deviation)


def _steps(values: Sequence[float], known: Sequence[int], found: course.Cuts) -> SeriesChange:
    edges = [0, *found.places, len(values)]
    medians = [median(values[start:end]) for start, end in pairwise(edges)]
    steps = tuple(
        LevelStep(known[place], before, after, p)
        for place, before, after, p in zip(found.places, medians, medians[1:], found.chances, strict=False)
    )
    noise = math.sqrt(found.residual / (len(values) - len(edges) + 1))
    return SeriesChange(CourseShape.STEPS, len(values), medians[-1], noise, steps)


def _two_levels(values: Sequence[float], split: levels.Split) -> SeriesChange:
    low, high = (
        [value for value, up in zip(values, split.high, strict=True) if bool(up) is at] for at in (False, True)
    )
    pair = LevelPair(median(low), median(high), len(high) / len(values), split.fact, split.at_low, split.at_high)
    noise = math.sqrt(split.residual / (len(values) - 2))
    return SeriesChange(CourseShape.TWO_LEVELS, len(values), median(values), noise, levels=pair)
