"""What may be removed, what stays, and how it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.cluster.cleanup.owner import Owner, OwnerState, dead_owner, myself
from pytest_hetgpu.cluster.cleanup.plan import FoundResource, Scope, make_plan, table
from pytest_hetgpu.cluster.cleanup.targets import LocalHost, Resource

ME = myself("20260101-a")
MINE = Scope(ME.uid, ME.machine, ME.user)
THEIRS = replace(ME, uid="4711", user="ada", run="20260101-b", token="t")
AFAR = replace(ME, machine="0" * 16, host="far", run="20260101-c")


def found(owner: Owner, kind: str = "container", name: str = "hetgpu-x") -> FoundResource:
    return FoundResource(LocalHost(), Resource(kind, name, "id", owner, 100.0))


@pytest.mark.parametrize(
    ("owner", "state", "scope", "goes", "because"),
    [
        (ME, OwnerState.DEAD, MINE, True, ""),
        (ME, OwnerState.LIVE, MINE, False, "is still running"),
        (ME, OwnerState.LIVE, replace(MINE, all_users=True, elsewhere=True), False, "is still running"),
        (THEIRS, OwnerState.DEAD, MINE, False, "is another user's; --all-users"),
        (THEIRS, OwnerState.DEAD, replace(MINE, all_users=True), True, ""),
        (THEIRS, OwnerState.LIVE, replace(MINE, all_users=True), False, "is still running"),
        (AFAR, OwnerState.UNKNOWN, MINE, False, "it is not known here"),
        (AFAR, OwnerState.UNKNOWN, replace(MINE, all_users=True), False, "it is not known here"),
        (AFAR, OwnerState.UNKNOWN, replace(MINE, elsewhere=True), True, ""),
        (replace(AFAR, uid="1"), OwnerState.UNKNOWN, replace(MINE, elsewhere=True), False, "another user's"),
        (replace(AFAR, user="ada"), OwnerState.UNKNOWN, replace(MINE, elsewhere=True), False, "another user's"),
        (replace(AFAR, user="ada"), OwnerState.UNKNOWN, replace(MINE, elsewhere=True, all_users=True), True, ""),
    ],
)
def test_only_what_is_ours_and_dead_goes(
    owner: Owner, state: OwnerState, scope: Scope, goes: bool, because: str
) -> None:
    one = found(owner)
    sorted_ = make_plan([one], scope, lambda _: state)
    assert sorted_.dead == ((one,) if goes else ())
    assert len(sorted_.kept) == (not goes)
    assert all(because in line and owner.run in line for line in sorted_.kept)


def test_what_is_kept_is_counted_by_run() -> None:
    several = [found(THEIRS), found(THEIRS, "process"), found(THEIRS, "process"), found(ME)]
    (line,) = make_plan(several, MINE, lambda owner: OwnerState.LIVE if owner == THEIRS else OwnerState.DEAD).kept
    assert line.startswith("1 container, 2 processes left alone: run 20260101-b (ada@")


def test_what_its_place_is_removing_already_is_told_and_nobody_needs_to_take_it() -> None:
    going = [
        FoundResource(one.target, replace(one.resource, being_removed=True))
        for one in (found(ME, "pod"), found(THEIRS, "pod"))
    ]
    staying = found(ME)
    sorted_ = make_plan([*going, staying], MINE, lambda _: OwnerState.DEAD)
    assert sorted_.dead == (staying,)
    assert sorted_.kept == ("2 pods left alone: on the way out of this machine already",)


def test_a_segment_that_somebody_may_use_stays_with_its_reason() -> None:
    doubtful = found(dead_owner(""), "segment")
    one = FoundResource(
        doubtful.target, replace(doubtful.resource, stays="processes outside this container may use it")
    )
    sorted_ = make_plan([one, doubtful], MINE, lambda _: OwnerState.DEAD)
    assert sorted_.dead == (doubtful,)
    assert sorted_.kept == ("1 segment left alone: on this machine processes outside this container may use it",)


def test_the_table_says_what_where_whose_how_old_and_of_which_run() -> None:
    lines = table([found(THEIRS, "process", "ran\x1bks"), found(ME)], now=100.0 + 7200)
    assert lines[0].split() == ["WHAT", "NAME", "WHERE", "WHOSE", "AGE", "RUN"]
    assert lines[1].split() == ["container", "hetgpu-x", "this", "machine", f"{ME.user}@{ME.host}", "2", "h", ME.run]
    assert "ran?ks (id)" in lines[2]
