"""Comparison of a cell's times with its limits, and the certainty of a slowdown. Pure.

One launch decides nothing: its repeats share connections, cores and the machine's other load. A cell that seems slow is
therefore launched again. It is slow only if the same points are slow in every launch, by more than the tolerance and
more than either side scatters. The probability of chance over all compared points must also be at most `SURE`.
superbench repeats before a verdict, too, with the same filter for outliers. The tests are those of `significance.py`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pytest_hetgpu.analysis.significance import above, any_of, larger
from pytest_hetgpu.model.job import Requirements
from pytest_hetgpu.model.records import MessagePoint, Row
from pytest_hetgpu.model.sample import FEWEST, Sample, sample, within_fences
from pytest_hetgpu.model.thresholds import Threshold

SURE = 0.01
"""Largest p at which a slowdown counts."""
FEWEST_LAUNCHES = 2
ENOUGH_LAUNCHES = 3
ENOUGH_SAMPLES = 15
MOST_LAUNCHES = 8
"""Launches before giving up; a launch that measures each point once needs more of them than one that repeats points."""


class SpeedState(enum.Enum):
    """State of a speed assessment; `doubtful`: another launch is needed, `unsure`: more would not help."""

    FINE = "fine"
    DOUBTFUL = "doubtful"
    UNSURE = "unsure"
    SLOW = "slow"


@dataclass(frozen=True)
class SpeedComparison:
    """Comparison of one point with one of its limits; `launches` holds the times of each launch, in seconds."""

    point: MessagePoint
    limit: Threshold
    launches: tuple[tuple[float, ...], ...]

    @cached_property
    def kept(self) -> tuple[float, ...]:
        """Times of all launches, without the outliers of each."""
        return tuple(time for launch in self.launches for time in within_fences(sorted(launch)))

    @cached_property
    def got(self) -> Sample | None:
        """Sample of all kept times."""
        return sample(self.kept)

    @cached_property
    def expected(self) -> Sample | None:
        """Sample of the limit's times."""
        return sample(self.limit.seconds)

    @property
    def beyond(self) -> bool:
        """Whether each launch is slower than the tolerance allows."""
        middles = [found.middle for launch in self.launches if (found := sample(launch))]
        if self.expected is None or not middles or len(middles) < len(self.launches):
            return False
        return min(middles) > self.limit.worst(self.expected.middle)

    @property
    def ratio(self) -> float:
        """Factor by which the point takes longer than expected."""
        return self.got.middle / self.expected.middle if self.got and self.expected else math.nan

    @cached_property
    def chance(self) -> float:
        """p that the point is no slower than tolerated; 1.0 if it is not slower, or if the times scatter more."""
        got, expected = self.got, self.expected
        if not (self.beyond and got and expected):
            return 1.0
        if got.middle - expected.middle <= max(got.high - got.low, expected.high - expected.low):
            return 1.0
        before = within_fences(sorted(self.limit.seconds))
        if len(before) < FEWEST:
            # So few are no picture of how times scatter; the slowest of them stands for all.
            return above(self.kept, self.limit.worst(before[-1]))
        allowed = self.limit.worst(1.0)
        return larger([time / allowed for time in self.kept], before)


@dataclass(frozen=True)
class Assessment:
    """All comparisons of a cell, in the order of its points; `launches` is how many there were."""

    comparisons: tuple[SpeedComparison, ...]
    launches: int

    @cached_property
    def beyond(self) -> tuple[SpeedComparison, ...]:
        """Comparisons slower than tolerated in every launch: the most significant first, then the slowest."""
        return tuple(
            sorted(
                (comparison for comparison in self.comparisons if comparison.beyond),
                key=lambda comparison: (comparison.chance, -comparison.ratio),
            )
        )

    @cached_property
    def chance(self) -> float:
        """p that none of them is slow."""
        return any_of([comparison.chance for comparison in self.comparisons])

    @property
    def state(self) -> SpeedState:
        """State after the launches so far."""
        if not self.beyond:
            return SpeedState.FINE
        if self.launches >= FEWEST_LAUNCHES and self.chance <= SURE:
            return SpeedState.SLOW
        samples = min(sum(map(len, comparison.launches)) for comparison in self.beyond)
        enough = self.launches >= ENOUGH_LAUNCHES and samples >= ENOUGH_SAMPLES
        return SpeedState.UNSURE if enough or self.launches >= MOST_LAUNCHES else SpeedState.DOUBTFUL


def assess(demand: Requirements, launches: Sequence[Sequence[Row]]) -> Assessment:
    """Compare a cell's rows with its limits; `launches` holds the rows of each launch, the first one first."""
    found = [times(demand, rows) for rows in launches]
    comparisons = (
        SpeedComparison(point, limit, tuple(tuple(one.get(point, ())) for one in found))
        for point, limit in _compared(demand.limits)
        if point in found[0]
    )
    return Assessment(tuple(comparisons), len(launches))


def _compared(limits: Mapping[MessagePoint, Sequence[Threshold]]) -> Iterator[tuple[MessagePoint, Threshold]]:
    return ((point, limit) for point, found in limits.items() for limit in found if limit.seconds)


def times(demand: Requirements, rows: Sequence[Row]) -> Mapping[MessagePoint, Sequence[float]]:
    """Return seconds per point, from rows of the demand's operation and ranks.

    Each point is also listed without its type.
    """
    found: dict[MessagePoint, list[float]] = {}
    for row in rows:
        if row.operation == demand.operation and row.ranks in (demand.row_ranks, 0):
            for point in {row.point, replace(row.point, dtype="")}:
                found.setdefault(point, []).append(row.seconds)
    return found
