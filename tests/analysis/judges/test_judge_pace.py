"""Speed states from a cell's launches: fine, doubtful, unsure or slow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_hetgpu.analysis.judges._slowdown import Assessment, SpeedComparison, SpeedState, assess
from pytest_hetgpu.model.metrics import measurements
from pytest_hetgpu.model.quantities import HIGHER, LOWER
from pytest_hetgpu.model.records import Measurement, MessagePoint, Row
from pytest_hetgpu.model.thresholds import Threshold
from tests.analysis.judges.judge_cases import job

SIZES = (1024, 1 << 20, 4 << 20)
STEADY = (0.99, 1.0, 1.0, 1.01, 1.02)


def times(factor: float = 1.0, around: Sequence[float] = STEADY) -> tuple[float, ...]:
    return tuple(factor * one for one in around)


def rows(size: int, seconds: Sequence[float]) -> list[Row]:
    return [Row("allreduce", MessagePoint(size, "float32"), 2, 4, one, place) for place, one in enumerate(seconds)]


def at(limit: Threshold, size: int) -> Threshold:
    """Return a limit whose values are seconds of two ranks in the unit of its metric."""
    if limit.metric == "latency":
        return replace(limit, values=tuple(one * 1e6 for one in limit.values), better=LOWER)
    return replace(limit, values=tuple(size / one / 1e9 for one in limit.values), better=HIGHER)


def judged(
    launches: Sequence[Sequence[float]],
    limit: Threshold | None = None,
    sizes: Sequence[int] = SIZES,
    slow: Sequence[int] = SIZES,
) -> Assessment:
    """Assess launches that share all sizes; those not `slow` match the limit in every launch."""
    held = limit or Threshold("busbw", "baseline", times())
    demand = job(limits={MessagePoint(size, "float32"): (at(held, size),) for size in sizes}).demand
    usual = times()
    found = [[row for size in sizes for row in rows(size, seconds if size in slow else usual)] for seconds in launches]
    return assess(demand, [measurements(launch) for launch in found])


def test_as_fast_as_ever() -> None:
    found = judged([times()])
    assert (found.state, found.beyond, len(found.comparisons)) == (SpeedState.FINE, (), 3)
    assert judged([times(0.5)]).state is SpeedState.FINE


def test_slower_but_not_by_more_than_is_tolerated() -> None:
    assert judged([times(1.1)]).state is SpeedState.FINE
    assert judged([times(1.12)]).state is SpeedState.DOUBTFUL
    assert judged([times(1.12)], Threshold("busbw", "", times(), tolerance=0.2)).state is SpeedState.FINE
    # A latency is slow above the number, a bandwidth below it.
    assert judged([times(1.105)], Threshold("latency", "", times())).state is SpeedState.DOUBTFUL
    assert judged([times(1.105)]).state is SpeedState.FINE


def test_one_launch_decides_nothing_and_two_do() -> None:
    once, twice = judged([times(1.25)]), judged([times(1.25)] * 2)
    assert (once.state, twice.state) == (SpeedState.DOUBTFUL, SpeedState.SLOW)
    assert twice.chance <= 0.001
    assert [pace.point.size for pace in twice.beyond] == list(SIZES)
    assert twice.beyond[0].ratio == pytest.approx(1.25)


def test_what_was_slow_only_once_is_fine() -> None:
    assert judged([times(1.25), times()]).state is SpeedState.FINE
    assert judged([times(1.25), times(1.25), times(1.05)]).state is SpeedState.FINE


def test_one_size_of_many_is_enough() -> None:
    sizes = [8 << place for place in range(20)]
    assert judged([times(1.25)] * 2, sizes=sizes, slow=sizes[-1:]).state is SpeedState.SLOW
    found = judged([times(1.25)] * 2, sizes=sizes, slow=sizes[-1:])
    assert [pace.point.size for pace in found.beyond] == sizes[-1:]
    assert found.chance == pytest.approx(20 / 3003)


def test_a_disturbed_repeat_is_left_out_on_either_side() -> None:
    spoilt = times(1.0, (0.99, 1.0, 1.0, 1.01, 9.0))
    assert judged([times(1.25, spoilt)] * 2).state is SpeedState.SLOW
    assert judged([times(1.25)] * 2, Threshold("busbw", "", spoilt)).state is SpeedState.SLOW
    assert judged([spoilt]).state is SpeedState.FINE


def test_a_change_that_is_smaller_than_the_noise_is_none() -> None:
    noisy = (0.8, 0.9, 1.0, 1.2, 1.4)
    found = [judged([times(1.3, noisy)] * count).state for count in (1, 2, 3)]
    assert found == [SpeedState.DOUBTFUL, SpeedState.DOUBTFUL, SpeedState.UNSURE]
    assert judged([times(1.3)] * 3, Threshold("busbw", "", noisy)).state is SpeedState.UNSURE
    assert judged([times(3.0, noisy)] * 2).state is SpeedState.SLOW


def test_a_single_number_as_the_limit() -> None:
    limit = Threshold("busbw", "m.yaml:1", (1.0,))
    assert judged([times(1.25)], limit).state is SpeedState.DOUBTFUL
    assert judged([times(1.25)] * 2, limit).state is SpeedState.SLOW
    assert judged([times(1.05)], limit).state is SpeedState.FINE


def test_of_two_or_three_numbers_the_slowest_stands_for_all() -> None:
    assert judged([times(1.25)] * 2, Threshold("busbw", "", (1.0, 1.02))).state is SpeedState.SLOW
    pace = SpeedComparison(
        MessagePoint(8, "float32"),
        Threshold("busbw", "", (1 / 0.9, 1.0, 1 / 1.15), better=HIGHER),
        (times(1.25), times(1.25)),
    )
    assert pace.beyond
    assert pace.chance == 1.0


def test_a_program_that_measures_once_is_launched_more_often() -> None:
    limit = Threshold("busbw", "", (1.0,))
    found = [judged([times(1.25, (1.0 + count / 1000,)) for count in range(many)], limit) for many in range(1, 9)]
    assert [one.state for one in found[:6]] == [SpeedState.DOUBTFUL] * 6
    assert found[6].state is SpeedState.SLOW
    scattered = [times(1.3, (share,)) for share in (0.9, 1.0, 1.3, 1.0, 1.2, 0.9, 1.0, 1.4, 1.1)]
    assert [judged(scattered[:many], limit).state for many in (8, 9)] == [SpeedState.DOUBTFUL, SpeedState.UNSURE]


def test_what_holds_for_one_reference_does_not_excuse_another() -> None:
    """Each launch of an application measures once; other limits that hold must not hide a clear excess."""
    here = MessagePoint(0, "none")
    fine = [Threshold(name, "baseline", (9.0,), "s", LOWER) for name in ("loop", "pair", "neigh", "comm")]
    held = (Threshold("loop", "m.yaml:3", (1.0,), "s", LOWER), *fine)
    demand = job(limits={here: held}).demand
    launch = [Measurement(name, 3.8, "s", here, 2) for name in ("loop", "pair", "neigh", "comm")]
    assert [assess(demand, [launch] * many).state for many in (6, 7)] == [SpeedState.DOUBTFUL, SpeedState.SLOW]
    only = job(limits={here: [replace(one, source="m.yaml:3") for one in held]}).demand
    assert [assess(only, [launch] * many).state for many in (8, 9)] == [SpeedState.DOUBTFUL, SpeedState.SLOW]


def test_what_a_launch_does_not_show_is_no_slowdown() -> None:
    demand = job(limits={MessagePoint(8, "float32"): (at(Threshold("busbw", "", times()), 8),)}).demand
    assert assess(demand, [[]]).state is SpeedState.FINE
    assert assess(demand, [measurements(rows(8, times(2))), []]).state is SpeedState.FINE
    other = [Row("allreduce", MessagePoint(8, "float32"), 4, 4, 9.0)]
    assert assess(demand, [measurements(other)]).state is SpeedState.FINE


def test_noise_alone_hardly_ever_alarms_and_a_fifth_less_is_nearly_always_found() -> None:
    """Draw times as real ones scatter: lognormal, 3 % within and 3 % between launches, with rare tails."""
    rng = random.Random(20261122)

    def launch(factor: float) -> list[list[float]]:
        between = rng.lognormvariate(0, 0.03)
        return [
            [
                factor * between * rng.lognormvariate(0, 0.03) * (1 + (rng.random() < 0.05) * rng.random() * 5)
                for _ in range(5)
            ]
            for _ in range(20)
        ]

    def verdict(factor: float) -> SpeedState:
        before = launch(1.0)
        points = [MessagePoint(1 << place, "float32") for place in range(3, 23)]
        limits = {
            point: (at(Threshold("busbw", "", tuple(seen)), point.size),)
            for point, seen in zip(points, before, strict=True)
        }
        launches: list[list[Row]] = []
        while True:
            taken = zip(points, launch(factor), strict=True)
            launches.append([row for point, seen in taken for row in rows(point.size, seen)])
            state = assess(job(limits=limits).demand, list(map(measurements, launches))).state
            if state is not SpeedState.DOUBTFUL:
                return state

    clean = [verdict(1.0) for _ in range(200)]
    slow = [verdict(1.25) for _ in range(200)]
    assert clean.count(SpeedState.SLOW) <= 2
    assert slow.count(SpeedState.SLOW) >= 190
