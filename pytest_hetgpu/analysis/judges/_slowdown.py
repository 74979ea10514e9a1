"""Comparison of a cell's numbers with its limits, and the certainty of a slowdown. Pure.

Each number counts as a cost, of which less is better: a time as it is, a rate as its reciprocal.

One launch decides nothing: its repeats share connections, cores and the machine's other load. A cell that seems slow is
therefore launched again. It is slow only if the same points are slow in every launch, by more than the tolerance. They
must also be slower by more than either side scatters, or in every repeat by a factor of `GROSS`. The probability of
chance over all points of a reference must be at most `SURE`. Superbench repeats before a verdict, too, with the same
filter for outliers. The tests are those of `significance.py`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pytest_hetgpu.analysis.significance import above, any_of, larger
from pytest_hetgpu.model.job import Requirements
from pytest_hetgpu.model.metrics import has_bandwidth
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.sample import FEWEST, Sample, sample, usable, within_fences
from pytest_hetgpu.model.thresholds import Threshold

SURE = 0.01
"""Largest p at which a slowdown counts."""
GROSS = 2.0
"""Factor above the highest tolerated cost at which scatter is no doubt any more."""
FEWEST_LAUNCHES = 2
ENOUGH_LAUNCHES = 3
ENOUGH_SAMPLES = 15
MOST_LAUNCHES = 8
"""Launches before giving up; a launch that measures each point once needs more of them than one that repeats points."""
MOST_OF_ALL = 12


class SpeedState(enum.Enum):
    """State of a speed assessment; `doubtful`: another launch is needed, `unsure`: more would not help."""

    FINE = "fine"
    DOUBTFUL = "doubtful"
    UNSURE = "unsure"
    SLOW = "slow"


@dataclass(frozen=True)
class SpeedComparison:
    """Comparison of one point with one of its limits; `launches` holds the costs of each launch."""

    point: MessagePoint
    limit: Threshold
    launches: tuple[tuple[float, ...], ...]

    @cached_property
    def kept(self) -> tuple[float, ...]:
        """Costs of all launches, without the outliers of each."""
        return tuple(cost for launch in self.launches for cost in within_fences(sorted(launch)))

    @cached_property
    def got(self) -> Sample | None:
        """Sample of all kept costs."""
        return sample(self.kept)

    @cached_property
    def expected(self) -> Sample | None:
        """Sample of the limit's costs."""
        return sample(self._before)

    @property
    def _before(self) -> list[float]:
        return sorted(map(self.limit.cost, self.limit.values))

    @property
    def beyond(self) -> bool:
        """Whether each launch is slower than the tolerance allows."""
        middles = [found.middle for launch in self.launches if (found := sample(launch))]
        if self.expected is None or not middles or len(middles) < len(self.launches):
            return False
        return min(middles) > self.limit.worst(self.expected.middle)

    @property
    def ratio(self) -> float:
        """Factor by which the point costs more than expected."""
        return self.got.middle / self.expected.middle if self.got and self.expected else math.nan

    @cached_property
    def chance(self) -> float:
        """p that the point is no slower than tolerated; 1.0 if it is not slower, or if the numbers scatter more."""
        got, expected = self.got, self.expected
        if not (self.beyond and got and expected):
            return 1.0
        scatter = max(got.high - got.low, expected.high - expected.low)
        # Costs that are many times too high may scatter by more than they are too high: all of them are.
        gross = got.low > GROSS * self.limit.worst(expected.high)
        if not gross and got.middle - expected.middle <= scatter:
            return 1.0
        before = within_fences(self._before)
        if len(before) < FEWEST:
            # So few are no picture of how they scatter; the slowest of them stands for all.
            return above(self.kept, self.limit.worst(before[-1]))
        allowed = self.limit.worst(1.0)
        return larger([cost / allowed for cost in self.kept], before)


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
        """p that the cell is no slower than any one reference or baseline allows."""
        return min((any_of([one.chance for one in found]) for found in self._by_source.values()), default=1.0)

    @property
    def _by_source(self) -> Mapping[str, Sequence[SpeedComparison]]:
        """Comparisons by the reference or baseline that they come from, each of which must hold by itself."""
        found: dict[str, list[SpeedComparison]] = {}
        for one in self.comparisons:
            found.setdefault(one.limit.source, []).append(one)
        return found

    @property
    def _most_launches(self) -> int:
        """Launches before giving up: as many as one slow number of a reference needs, if each launch measures once."""
        most = max(map(len, self._by_source.values()), default=1)
        return min(max(MOST_LAUNCHES, math.ceil(math.log2(most / SURE))), MOST_OF_ALL)

    @property
    def state(self) -> SpeedState:
        """State after the launches so far."""
        if not self.beyond:
            return SpeedState.FINE
        if self.launches >= FEWEST_LAUNCHES and self.chance <= SURE:
            return SpeedState.SLOW
        samples = min(sum(map(len, comparison.launches)) for comparison in self.beyond)
        enough = self.launches >= ENOUGH_LAUNCHES and samples >= ENOUGH_SAMPLES
        return SpeedState.UNSURE if enough or self.launches >= self._most_launches else SpeedState.DOUBTFUL


def assess(demand: Requirements, launches: Sequence[Iterable[Measurement]]) -> Assessment:
    """Compare a cell's numbers with its limits; `launches` holds the numbers of each launch, the first one first."""
    found = [by_metric(demand, one) for one in launches]
    comparisons = (
        SpeedComparison(point, limit, tuple(tuple(_costs(limit, one.get((limit.metric, point)))) for one in found))
        for point, limit in _compared(demand.limits)
        if (limit.metric, point) in found[0]
    )
    return Assessment(tuple(comparisons), len(launches))


def _compared(limits: Mapping[MessagePoint, Sequence[Threshold]]) -> Iterator[tuple[MessagePoint, Threshold]]:
    return ((point, limit) for point, found in limits.items() for limit in found if limit.values)


def _costs(limit: Threshold, found: Measurement | None) -> Iterator[float]:
    values = (found.samples or (found.value,)) if found else ()
    return (limit.cost(value) for value in values if value > 0 and usable(value))


def by_metric(demand: Requirements, numbers: Iterable[Measurement]) -> Mapping[tuple[str, MessagePoint], Measurement]:
    """Return the numbers of the demand's ranks by metric and point. Each point is also listed without its type.

    A bandwidth of several messages in flight replaces a busbw that a program does not measure.
    """
    found: dict[tuple[str, MessagePoint], Measurement] = {}
    for one in numbers:
        if not one.value > 0 or not usable(one.value) or (demand.row_ranks and one.ranks not in (demand.row_ranks, 0)):
            continue
        for point in (one.point, replace(one.point, dtype="")):
            found.setdefault((one.metric, point), one)
    if has_bandwidth(demand.operation, demand.row_ranks or 2):
        flights = [(point, one) for (metric, point), one in found.items() if metric == "bandwidth"]
        for point, one in flights:
            found.setdefault(("busbw", point), one)
    return found
