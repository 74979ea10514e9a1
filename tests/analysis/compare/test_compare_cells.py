"""What became of cells, before and after."""

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.compare.cells import CellChange, KeyChange, changes, keys, state
from pytest_hetgpu.analysis.compare.sides import Side, Way
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.run_summary import CellSummary
from tests.analysis.compare.compare_samples import KEY, OTHER, absent, bad, good, series, side

KNOWN = bad("c", verdict=Verdict.KNOWN)
SLOW = good("c", kind=Kind.SLOW, verdict=Verdict.NEW)
FIXED = good("c", verdict=Verdict.FIXED)


def only(before: Side, after: Side) -> CellChange:
    [one] = changes(before, after)
    return one


@pytest.mark.parametrize(
    ("before", "after", "way"),
    [
        (good("c"), good("c"), Way.SAME),
        (good("c"), bad("c"), Way.WORSE),
        (good("c"), KNOWN, Way.WORSE),
        (good("c"), absent("c"), Way.WORSE),
        (good("c"), SLOW, Way.WORSE),
        (good("c"), FIXED, Way.CHANGED),
        (SLOW, good("c"), Way.BETTER),
        (SLOW, bad("c"), Way.WORSE),
        (bad("c"), bad("c"), Way.SAME),
        (bad("c"), good("c"), Way.BETTER),
        (bad("c"), SLOW, Way.BETTER),
        (bad("c"), absent("c"), Way.CHANGED),
        (bad("c"), KNOWN, Way.BETTER),
        (bad("c"), bad("c", verdict=Verdict.CHANGED), Way.CHANGED),
        (bad("c"), bad("c", OTHER), Way.WORSE),
        (bad("c"), bad("c", "", kind=Kind.HANG), Way.WORSE),
        (bad("c"), bad("c", OTHER, Verdict.KNOWN), Way.CHANGED),
        (KNOWN, FIXED, Way.BETTER),
        (KNOWN, bad("c"), Way.WORSE),
        (KNOWN, KNOWN, Way.SAME),
        (absent("c"), absent("c"), Way.SAME),
        (absent("c"), good("c"), Way.BETTER),
        (absent("c"), bad("c"), Way.WORSE),
        (absent("c"), KNOWN, Way.CHANGED),
    ],
)
def test_a_cell_of_both_sides(before: CellSummary, after: CellSummary, way: Way) -> None:
    assert only(side(before), side(after)).way is way


@pytest.mark.parametrize(
    ("cell", "appeared", "vanished"),
    [
        (good("c"), Way.APPEARED, Way.WORSE),
        (bad("c"), Way.WORSE, Way.VANISHED),
        (KNOWN, Way.APPEARED, Way.VANISHED),
        (absent("c"), Way.APPEARED, Way.VANISHED),
        (FIXED, Way.APPEARED, Way.WORSE),
    ],
)
def test_a_cell_of_one_side(cell: CellSummary, appeared: Way, vanished: Way) -> None:
    came, left = only(side(), side(cell)), only(side(cell), side())
    assert (came.way, came.before, left.way, left.after) == (appeared, None, vanished, None)


def test_of_several_runs_what_happened_most_counts() -> None:
    base = series([good("c")], [bad("c")], [good("c")])
    one = only(base, side(bad("c")))
    assert one.way is Way.WORSE
    assert one.before is not None
    assert (one.before.kind, one.before.times, one.before.runs) == (Kind.PASSED, 2, 3)


def test_of_equals_the_newest_counts_and_runs_that_left_it_out_do_not() -> None:
    found = state([absent("c"), bad("c"), good("c"), absent("c"), absent("c")])
    assert found is not None
    assert (found.kind, found.times, found.runs) == (Kind.CRASH, 1, 2)
    assert state([]) is None


def test_a_cell_that_few_runs_had_may_go() -> None:
    base = series([good("a")], [good("a"), good("rare")], [good("a")])
    assert {one.scenario: one.way for one in changes(base, side(good("a")))} == {"a": Way.SAME, "rare": Way.VANISHED}


def moved(before: Side, after: Side) -> list[KeyChange]:
    return list(keys(list(changes(before, after))))


def test_signatures_that_are_new_gone_and_moved() -> None:
    before = side(bad("a"), bad("b", OTHER), good("c"), bad("d", "", kind=Kind.HANG))
    after = side(good("a"), bad("b"), bad("c"), bad("d", "", kind=Kind.HANG))
    assert moved(before, after) == [
        KeyChange(KEY, "moved", (("aws", "a"),), (("aws", "b"), ("aws", "c"))),
        KeyChange(OTHER, "gone", (("aws", "b"),), ()),
    ]
    assert [(one.key, one.what) for one in moved(side(good("a")), side(bad("a", "", kind=Kind.HANG)))] == [
        ("hang without a signature", "new")
    ]
    assert moved(before, before) == []
