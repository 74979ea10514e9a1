"""Whether a cell is slower than it should be, and how sure that is. Pure.

One launch decides nothing: its repeats share their connections, their place on the cores and whatever else the machine
was doing. So a cell that seems slow is launched again, and is slow only if the same points are slow in every launch, by
more than the tolerance and more than either side scatters, and if chance would hardly show that much (`SURE`) at any of
all points that were compared. superbench repeats before a verdict, too, with the same filter for outliers; the tests
are those of `_significance`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pytest_hetgpu.analysis.judges._significance import above, any_of, larger
from pytest_hetgpu.model.job import Requirements
from pytest_hetgpu.model.records import MessagePoint, Row
from pytest_hetgpu.model.sample import FEWEST, Sample, sample, within_fences
from pytest_hetgpu.model.thresholds import Threshold

SURE = 0.01
"""p up to which a slowdown is believed."""
FEWEST_LAUNCHES = 2
ENOUGH_LAUNCHES = 3
ENOUGH_SAMPLES = 15
MOST_LAUNCHES = 8
"""Where a launch measures each point once, more of them are needed than where it repeats them."""


class State(enum.Enum):
    """What is known of a cell's speed; `doubtful`: another launch is needed, `unsure`: more would not help."""

    FINE = "fine"
    DOUBTFUL = "doubtful"
    UNSURE = "unsure"
    SLOW = "slow"


@dataclass(frozen=True)
class Pace:
    """One point beside one of its limits. `launches` are the times in seconds that each launch measured."""

    point: MessagePoint
    limit: Threshold
    launches: tuple[tuple[float, ...], ...]

    @cached_property
    def kept(self) -> tuple[float, ...]:
        """The times of all launches, without the outliers of each."""
        return tuple(time for launch in self.launches for time in within_fences(sorted(launch)))

    @cached_property
    def got(self) -> Sample | None:
        """They as one."""
        return sample(self.kept)

    @cached_property
    def expected(self) -> Sample | None:
        """What the limit's times are as one."""
        return sample(self.limit.seconds)

    @property
    def beyond(self) -> bool:
        """Whether each launch is slower than is tolerated."""
        middles = [found.middle for launch in self.launches if (found := sample(launch))]
        if self.expected is None or not middles or len(middles) < len(self.launches):
            return False
        return min(middles) > self.limit.worst(self.expected.middle)

    @property
    def ratio(self) -> float:
        """How many times longer it takes than expected."""
        return self.got.middle / self.expected.middle if self.got and self.expected else math.nan

    @cached_property
    def chance(self) -> float:
        """p that it is no slower than is tolerated; 1.0 where it is not, or differs less than the times scatter."""
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

    paces: tuple[Pace, ...]
    launches: int

    @cached_property
    def beyond(self) -> tuple[Pace, ...]:
        """Those slower than is tolerated in every launch, the surest first, of equals the slowest."""
        return tuple(sorted((pace for pace in self.paces if pace.beyond), key=lambda pace: (pace.chance, -pace.ratio)))

    @cached_property
    def chance(self) -> float:
        """p that none of them is slow."""
        return any_of([pace.chance for pace in self.paces])

    @property
    def state(self) -> State:
        """What is known by now."""
        if not self.beyond:
            return State.FINE
        if self.launches >= FEWEST_LAUNCHES and self.chance <= SURE:
            return State.SLOW
        samples = min(sum(map(len, pace.launches)) for pace in self.beyond)
        enough = self.launches >= ENOUGH_LAUNCHES and samples >= ENOUGH_SAMPLES
        return State.UNSURE if enough or self.launches >= MOST_LAUNCHES else State.DOUBTFUL


def assess(demand: Requirements, launches: Sequence[Sequence[Row]]) -> Assessment:
    """Every comparison that a cell's limits ask for, with the rows of all its launches, the first one first."""
    found = [times(demand, rows) for rows in launches]
    paces = (
        Pace(point, limit, tuple(tuple(one.get(point, ())) for one in found))
        for point, limit in _compared(demand.limits)
        if point in found[0]
    )
    return Assessment(tuple(paces), len(launches))


def _compared(limits: Mapping[MessagePoint, Sequence[Threshold]]) -> Iterator[tuple[MessagePoint, Threshold]]:
    return ((point, limit) for point, found in limits.items() for limit in found if limit.seconds)


def times(demand: Requirements, rows: Sequence[Row]) -> Mapping[MessagePoint, Sequence[float]]:
    """Seconds that rows of the demand's operation and ranks tell of each point; of any type under no type, too."""
    found: dict[MessagePoint, list[float]] = {}
    for row in rows:
        if row.operation == demand.operation and row.ranks in (demand.row_ranks, 0):
            for point in {row.point, replace(row.point, dtype="")}:
                found.setdefault(point, []).append(row.seconds)
    return found
