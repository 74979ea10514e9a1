"""Tasks that wait are in order, and apart by whether their hosts are free, whatever happens to hosts."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pytest_hetgpu.session.xdist.waiting import Task, Waiting


def task(index: int, hosts: str, seconds: float = 1.0, group: str = "") -> Task:
    return Task(index, frozenset(hosts), seconds, group or hosts)


def ordered(waiting: Waiting) -> list[int]:
    return [one.index for _, one in sorted((*waiting.free, *waiting.blocked))]


def test_first_come_tasks_whose_hosts_have_most_before_them_then_wide_then_long_ones() -> None:
    waiting = Waiting([task(0, "a", 2), task(1, "b", 4), task(2, "ac", 2), task(3, "d", 3), task(4, "ef", 3)])
    assert ordered(waiting) == [2, 1, 0, 4, 3]


def test_a_task_that_has_its_hosts_blocks_the_others_until_it_ends() -> None:
    first, other, apart = task(0, "ab"), task(1, "bc"), task(2, "d")
    waiting = Waiting([first, other, apart])
    waiting.take(first)
    waiting.start(first, until=5.0, kept=False)
    assert [one.index for _, one in waiting.blocked] == [1]
    assert [one.index for _, one in waiting.free] == [2]
    assert waiting.free_at(other, now=1.0) == 5.0
    waiting.end(first)
    assert waiting.blocked == []
    assert waiting.startable(other)


def test_a_task_that_was_never_started_counts_once_for_its_hosts() -> None:
    waiting = Waiting([task(0, "a"), task(1, "b", 1.5)])
    kept = task(0, "a")
    waiting.keep(kept)
    waiting.drop(kept)
    assert ordered(waiting) == [1, 0]
    assert waiting.count == 2


@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_in_order_is_what_would_be_put_in_order(seed: int) -> None:
    given = random.Random(seed)
    tasks = [task(index, given.choice(("a", "b", "ab", "bc", "cd", "")), given.randrange(1, 4)) for index in range(40)]
    waiting, taken, running = Waiting(tasks), list[Task](), list[Task]()
    for _ in range(120):
        free = [one for _, one in waiting.free]
        what = given.choice(("take", "start", "end", "drop"))
        if what == "take" and free:
            taken.append(given.choice(free))
            waiting.keep(taken[-1])
        elif what == "start" and taken and waiting.startable(taken[-1]):
            running.append(taken.pop())
            waiting.start(running[-1], until=given.random(), kept=True)
        elif what == "end" and running:
            waiting.end(running.pop(0))
        elif what == "drop" and taken:
            waiting.drop(taken.pop(0))
        for ranked, free_now in ((waiting.free, True), (waiting.blocked, False)):
            assert ranked == sorted((waiting.order(one), one) for _, one in ranked)
            assert all(waiting.startable(one) is free_now for _, one in ranked)
        left = {one.index for one in tasks} - {one.index for one in (*taken, *running)}
        assert {one.index for _, one in (*waiting.free, *waiting.blocked)} <= left


def test_what_is_kept_next_is_on_hosts_that_nobody_keeps_a_task_for() -> None:
    waiting = Waiting([task(0, "a", 5), task(1, "a", 4), task(2, "b", 3), task(3, "c", 1)])
    waiting.keep(task(0, "a", 5))
    assert waiting.elsewhere() == task(2, "b", 3)
    waiting.keep(task(2, "b", 3))
    waiting.keep(task(3, "c", 1))
    assert waiting.elsewhere() == task(1, "a", 4), "better than nothing"


def test_what_is_on_a_node_that_was_given_up_waits_for_no_host_and_has_nothing_before_it() -> None:
    busy, lost, mixed, apart = (
        replace(task(index, hosts), nodes=frozenset({f"cpu on {host}" for host in hosts}))
        for index, hosts in enumerate(("a", "a", "ab", "b"))
    )
    waiting = Waiting([busy, lost, mixed, apart])
    waiting.take(busy)
    waiting.start(busy, until=5.0, kept=False)
    waiting.quarantine(frozenset({"cpu on a"}))
    assert [one.index for _, one in waiting.free] == [3, 1, 2]
    assert waiting.blocked == []
    assert waiting.count == 3
    assert waiting.order(apart)[0] == -1.0, "the wide one no longer needs b"
    waiting.end(busy)
    assert waiting.order(busy)[0] == 0.0
