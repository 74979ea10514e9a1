"""Numbers of both sides: like with like."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.compare.numbers import NumberChange, changes, relative
from pytest_hetgpu.analysis.compare.sides import Side, Way
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.store.run_summary import PastCell
from tests.analysis.compare.compare_samples import absent, bad, busbw, good, latency, series, side

Change = Callable[[PastCell], PastCell]


def held(before: Side, after: Side, tolerance: float = 0.1) -> list[NumberChange]:
    return list(changes(before, after, tolerance))


def pair(before: Measurement, after: Measurement, tolerance: float = 0.1) -> NumberChange:
    [one] = held(side(good("c", before)), side(good("c", after)), tolerance)
    return one


@pytest.mark.parametrize(
    ("before", "after", "way", "percent"),
    [
        (busbw(1.0), busbw(1.0), Way.SAME, 0),
        (busbw(1.0), busbw(0.9), Way.SAME, -10),
        (busbw(1.0), busbw(1.1), Way.SAME, 10),
        (busbw(1.0), busbw(0.88), Way.WORSE, -12),
        (busbw(1.0), busbw(1.2), Way.BETTER, 20),
        (latency(1.0), latency(1.2), Way.WORSE, 20),
        (latency(1.0), latency(0.8), Way.BETTER, -20),
        (busbw(1.0), busbw(0.0), Way.WORSE, -100),
        (busbw(0.0), busbw(0.0), Way.SAME, 0),
        (busbw(0.0), busbw(1.0), Way.BETTER, math.inf),
        (latency(0.0), latency(1.0), Way.WORSE, math.inf),
        (busbw(5e-324), busbw(1.7e308), Way.BETTER, math.inf),
    ],
)
def test_less_bandwidth_and_more_latency_are_worse(
    before: Measurement, after: Measurement, way: Way, percent: float
) -> None:
    found = pair(before, after)
    assert found.way is way
    assert found.change is not None
    assert found.change * 100 == pytest.approx(percent)


def test_the_tolerance_decides() -> None:
    assert pair(busbw(1.0), busbw(0.7), 0.3).way is Way.SAME
    assert pair(busbw(1.0), busbw(0.99), 0.0).way is Way.WORSE


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -math.inf, -1.0])
def test_what_is_no_number_counts_as_missing(nonsense: float) -> None:
    worse = pair(busbw(1.0), busbw(nonsense))
    assert (worse.way, worse.after, worse.change, worse.why) == (Way.WORSE, None, None, f"{nonsense:g} is no number")
    assert pair(busbw(nonsense), busbw(1.0)).way is Way.APPEARED
    assert pair(busbw(nonsense), busbw(nonsense)).way is Way.SAME


def test_a_number_that_is_missing_is_worse_and_one_that_came_is_not() -> None:
    many, few = side(good("c", busbw(1.0), busbw(2.0, 2048))), side(good("c", busbw(1.0)))
    assert [(one.point.size, one.way) for one in held(many, few)] == [(1024, Way.SAME), (2048, Way.WORSE)]
    assert held(many, few)[1].why == "not measured any more"
    assert [(one.point.size, one.way) for one in held(few, many)] == [(1024, Way.SAME), (2048, Way.APPEARED)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: replace(c, measurements=(busbw(9.0, ranks=4),)), "ranks 2 before and 4 after"),
        (lambda c: replace(c, tool="osu_allreduce"), "tool allreduce.py before and osu_allreduce after"),
        (lambda c: replace(c, facts={"memory": "guarded"}), "memory host before and guarded after"),
        (lambda c: replace(c, measurements=(busbw(9.0, dtype="int8"),)), "float32 before and int8 after"),
        (lambda c: replace(c, measurements=(busbw(9.0, place="in"),)), "float32 before and float32 in place after"),
        (
            lambda c: replace(c, measurements=(replace(busbw(9.0), unit="MB/s"),)),
            "unit GB/s before and MB/s after",
        ),
    ],
)
def test_unlike_numbers_are_not_compared(change: Change, why: str) -> None:
    cell = good("c", busbw(1.0))
    [one] = held(side(cell), side(change(cell)))
    assert (one.way, one.why, one.change) == (Way.UNLIKE, why, None)


def test_what_is_not_known_is_like_anything() -> None:
    stranger = good("c", busbw(1.0, ranks=0), tool="", facts={})
    for before, after in ((stranger, good("c", busbw(1.0, ranks=8))), (good("c", busbw(1.0)), stranger)):
        assert [one.way for one in held(side(before), side(after))] == [Way.SAME]


def test_a_cell_that_does_not_work_has_no_numbers_to_hold() -> None:
    cell = good("c", busbw(1.0))
    failed = replace(bad("c"), measurements=(busbw(0.1),))
    for other in (failed, absent("c"), good("other", busbw(1.0))):
        assert held(side(cell), side(other)) == held(side(other), side(cell)) == []
    assert [one.way for one in held(side(cell), side(replace(cell, kind=Kind.SLOW)))] == [Way.SAME]


def test_several_runs_give_a_median_without_outliers() -> None:
    base = series(*([good("c", busbw(value))] for value in (1.0, 1.02, 0.98, 1.01, 0.99, 0.2)))
    [one] = held(base, side(good("c", busbw(0.8))))
    assert (one.way, one.before and (one.before.middle, one.before.values, one.before.outliers)) == (
        Way.WORSE,
        (1.0, 5, 1),
    )


def test_what_the_runs_before_showed_themselves_is_not_worse() -> None:
    base = series(*([good("c", busbw(value))] for value in (1.0, 0.7, 1.1)))
    assert [one.way for one in held(base, side(good("c", busbw(0.75))))] == [Way.SAME]
    assert [one.way for one in held(base, side(good("c", busbw(0.69))))] == [Way.WORSE]


def repeated(*values: float) -> PastCell:
    middle = sorted(values)[len(values) // 2]
    return good("c", replace(busbw(middle), samples=values))


def test_of_a_single_run_its_repeats_show_how_much_it_scatters() -> None:
    base = side(repeated(1.0, 0.7, 1.1, 1.0, 0.95))
    [one] = held(base, side(good("c", busbw(0.75))))
    assert one.before
    assert (one.way, one.before.middle, one.before.low, one.before.of) == (Way.WORSE, 1.0, 0.95, "repeat")
    [one] = held(side(repeated(1.0, 0.7, 1.1, 0.8, 0.9)), side(good("c", busbw(0.75))))
    assert one.way is Way.SAME


def test_of_several_runs_only_their_medians_count() -> None:
    base = series([repeated(0.1, 1.0, 1.1)], [repeated(0.9, 1.0, 9.0)])
    [one] = held(base, side(repeated(0.5, 0.8, 0.9)))
    assert one.before
    assert (one.way, one.before.low, one.before.high, one.before.of) == (Way.WORSE, 1.0, 1.0, "run")


def test_older_runs_that_are_unlike_do_not_count() -> None:
    base = series([good("c", busbw(1.0))], [good("c", busbw(9.0, ranks=8))], [good("c", busbw(1.0))])
    [one] = held(base, side(good("c", busbw(1.0))))
    assert one.before is not None
    assert (one.way, one.before.values, one.before.high) == (Way.SAME, 2, 1.0)


def test_a_number_that_few_runs_had_may_go() -> None:
    base = series([good("c", busbw(1.0))], [good("c", busbw(1.0), latency(1.0))], [good("c", busbw(1.0))])
    assert [one.metric for one in held(base, side(good("c", busbw(1.0))))] == ["busbw"]


def test_relative() -> None:
    assert [relative(0.0, 0.0), relative(2.0, 1.0), relative(0.0, 1.0)] == [0.0, -0.5, math.inf]


MEASUREMENTS = st.builds(
    Measurement,
    st.sampled_from(["busbw", "latency"]),
    st.floats(),
    st.sampled_from(["GB/s", "us", ""]),
    st.builds(MessagePoint, st.integers(0, 3), st.sampled_from(["a", "b"]), st.sampled_from(["", "in"])),
    st.integers(0, 2),
)
SIDES = st.lists(st.lists(MEASUREMENTS, max_size=5), min_size=1, max_size=4).map(
    lambda runs: series(*([good("c", *measured)] for measured in runs))
)


@given(SIDES, SIDES, st.floats(0, 2))
def test_whatever_was_measured(before: Side, after: Side, tolerance: float) -> None:
    found = held(before, after, tolerance)
    assert all(one.change is None or not math.isnan(one.change) for one in found)
    back = {(one.metric, one.point): one.way for one in held(after, before, tolerance)}
    for one in found:
        both = (one.way, back.get((one.metric, one.point)))
        assert both != (Way.BETTER, Way.BETTER)


@given(SIDES, st.floats(0, 2))
def test_nothing_is_worse_than_itself(some: Side, tolerance: float) -> None:
    one = Side("A", some.runs[:1])
    assert {number.way for number in held(one, one, tolerance)} <= {Way.SAME}


@pytest.mark.parametrize("after", ["osu_allreduce 7.4", "nccl-tests all_reduce_perf 2.19.6", "allreduce.py"])
def test_what_another_tool_or_release_of_it_measured_is_never_compared(after: str) -> None:
    before = good("c", busbw(1.0), tool="osu_allreduce 7.2")
    [one] = held(side(before), side(replace(before, measurements=(busbw(0.1),), tool=after)))
    assert (one.way, one.why) == (Way.UNLIKE, f"tool osu_allreduce 7.2 before and {after} after")
