"""Which nodes are given up, and which are not."""

from __future__ import annotations

from pytest_hetgpu.execution.retry.quarantine import quarantined
from pytest_hetgpu.store.events import HealthReported

A, B, C = "a on h1", "b on h2", "c on h3"


def health(*nodes: str, up: bool = False, why: str = "", **changes: object) -> HealthReported:
    return HealthReported("m", f"cell-{'-'.join(node[0] for node in nodes)}", nodes, up, suspect=why, **changes)  # type: ignore[arg-type]


def unready(node: str, *others: str) -> HealthReported:
    return health(node, *others, failed={node: "ssh: connection refused"}, ready=False)


def lost(node: str, *others: str, up: bool = True) -> HealthReported:
    return health(node, *others, up=up, failed={node: "node x was lost: its agent ended"})


def test_a_node_that_cannot_be_made_ready_twice_is_given_up() -> None:
    assert quarantined([unready(A, B)]) == {}
    found = quarantined([unready(A, B), unready(A, C)])
    assert found == {A: "ssh: connection refused, 2 times in a row (cell cell-a-c)"}
    assert quarantined([unready(A, B)], limit=1) == {A: "ssh: connection refused, once (cell cell-a-b)"}


def test_what_works_in_between_counts_from_the_beginning() -> None:
    assert quarantined([unready(A, B), health(A, B, up=True), unready(A, B)]) == {}


def test_a_node_that_is_lost_again_and_again_is_given_up() -> None:
    assert quarantined([lost(A, B)] * 2) == {}
    assert list(quarantined([lost(A, B)] * 3)) == [A]
    assert list(quarantined([lost(A, B), lost(A, B, up=False), unready(A, B)])) == [A]


def test_jobs_that_do_not_start_in_several_companies_blame_what_they_share() -> None:
    works = health(B, C, up=True)
    fails = [health(A, B, why="no route"), health(A, C, why="no route"), health(A, B, why="no route")]
    found = quarantined([works, *fails])
    assert list(found) == [A]
    assert "3 jobs in a row did not start with it, while others do: no route" in found[A]


def test_one_company_that_does_not_start_blames_nobody() -> None:
    works = [health(A, A, up=True), health(B, C, up=True)]
    assert quarantined([*works, *[health(A, B, why="they do not fit")] * 9]) == {}


def test_where_nothing_else_works_nobody_is_blamed() -> None:
    assert quarantined([health(A, B, why="w"), health(A, C, why="w")] * 3) == {}


def test_whoever_is_given_up_stays_so() -> None:
    assert list(quarantined([unready(A), unready(A), health(A, up=True)])) == [A]
