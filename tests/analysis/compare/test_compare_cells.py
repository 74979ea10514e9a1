"""Outcomes of cells, before and after."""

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.compare.cells import CellChange, KeyChange, changes, keys, typical_outcome
from pytest_hetgpu.analysis.compare.sides import ChangeKind, Side
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.run_summary import CellSummary
from tests.analysis.compare.compare_samples import KEY, OTHER, absent, bad, good, series, side

KNOWN = bad("c", verdict=Verdict.KNOWN)
SLOW = good("c", kind=Kind.SLOW, verdict=Verdict.NEW)
FIXED = good("c", verdict=Verdict.FIXED)
STOPPED = bad("c", "", kind=Kind.UNKNOWN, verdict=Verdict.NOT_RUN)


def only(before: Side, after: Side) -> CellChange:
    [one] = changes(before, after)
    return one


@pytest.mark.parametrize(
    ("before", "after", "way"),
    [
        (good("c"), good("c"), ChangeKind.SAME),
        (good("c"), bad("c"), ChangeKind.WORSE),
        (good("c"), KNOWN, ChangeKind.WORSE),
        (good("c"), absent("c"), ChangeKind.WORSE),
        (good("c"), SLOW, ChangeKind.WORSE),
        (good("c"), FIXED, ChangeKind.CHANGED),
        (SLOW, good("c"), ChangeKind.BETTER),
        (SLOW, bad("c"), ChangeKind.WORSE),
        (bad("c"), bad("c"), ChangeKind.SAME),
        (bad("c"), good("c"), ChangeKind.BETTER),
        (bad("c"), SLOW, ChangeKind.BETTER),
        (bad("c"), absent("c"), ChangeKind.CHANGED),
        (bad("c"), KNOWN, ChangeKind.BETTER),
        (bad("c"), bad("c", verdict=Verdict.CHANGED), ChangeKind.CHANGED),
        (bad("c"), bad("c", OTHER), ChangeKind.WORSE),
        (bad("c"), bad("c", "", kind=Kind.HANG), ChangeKind.WORSE),
        (bad("c"), bad("c", OTHER, Verdict.KNOWN), ChangeKind.CHANGED),
        (KNOWN, FIXED, ChangeKind.BETTER),
        (KNOWN, bad("c"), ChangeKind.WORSE),
        (KNOWN, KNOWN, ChangeKind.SAME),
        (absent("c"), absent("c"), ChangeKind.SAME),
        (absent("c"), good("c"), ChangeKind.BETTER),
        (absent("c"), bad("c"), ChangeKind.WORSE),
        (absent("c"), KNOWN, ChangeKind.CHANGED),
        (good("c"), STOPPED, ChangeKind.CHANGED),
        (SLOW, STOPPED, ChangeKind.CHANGED),
        (bad("c"), STOPPED, ChangeKind.CHANGED),
        (STOPPED, STOPPED, ChangeKind.SAME),
        (STOPPED, good("c"), ChangeKind.CHANGED),
        (STOPPED, bad("c"), ChangeKind.WORSE),
    ],
)
def test_a_cell_of_both_sides(before: CellSummary, after: CellSummary, way: ChangeKind) -> None:
    assert only(side(before), side(after)).kind is way


@pytest.mark.parametrize(
    ("cell", "appeared", "vanished"),
    [
        (good("c"), ChangeKind.APPEARED, ChangeKind.WORSE),
        (bad("c"), ChangeKind.WORSE, ChangeKind.VANISHED),
        (KNOWN, ChangeKind.APPEARED, ChangeKind.VANISHED),
        (absent("c"), ChangeKind.APPEARED, ChangeKind.VANISHED),
        (FIXED, ChangeKind.APPEARED, ChangeKind.WORSE),
    ],
)
def test_a_cell_of_one_side(cell: CellSummary, appeared: ChangeKind, vanished: ChangeKind) -> None:
    came, left = only(side(), side(cell)), only(side(cell), side())
    assert (came.kind, came.before, left.kind, left.after) == (appeared, None, vanished, None)


def test_of_several_runs_what_happened_most_counts() -> None:
    base = series([good("c")], [bad("c")], [good("c")])
    one = only(base, side(bad("c")))
    assert one.kind is ChangeKind.WORSE
    assert one.before is not None
    assert (one.before.kind, one.before.times, one.before.runs) == (Kind.PASSED, 2, 3)


def test_of_equals_the_newest_counts_and_runs_that_left_it_out_do_not() -> None:
    found = typical_outcome([absent("c"), bad("c"), good("c"), absent("c"), absent("c")])
    assert found is not None
    assert (found.kind, found.times, found.runs) == (Kind.CRASH, 1, 2)
    assert typical_outcome([]) is None


def test_a_cell_that_few_runs_had_may_go() -> None:
    base = series([good("a")], [good("a"), good("rare")], [good("a")])
    assert {one.scenario: one.kind for one in changes(base, side(good("a")))} == {
        "a": ChangeKind.SAME,
        "rare": ChangeKind.VANISHED,
    }


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
