"""Nothing is double booked, nothing is forgotten, and hosts are not left idle."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

import pytest

from pytest_hetgpu.session.xdist.scheduler import Assignment, Scheduler
from pytest_hetgpu.session.xdist.waiting import Task


class Farm:
    """Workers as xdist's: each starts a test once it knows the next, or that there is none."""

    def __init__(self, tasks: Sequence[Task], workers: int, seed: int = 0, noise: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.tasks = {task.index: task for task in tasks}
        self.takes = {task.index: task.seconds * (1 + self.random.uniform(-noise, noise)) for task in tasks}
        self.scheduler = Scheduler(tasks)
        self.queues: dict[int, list[int]] = {}
        self.last: set[int] = set()
        self.running: dict[int, int] = {}
        self.ends: list[tuple[float, int]] = []
        self.now = 0.0
        self.done: list[int] = []
        for worker in range(workers):
            self.join(worker)
        self.follow(self.scheduler.assignments(self.now))

    def join(self, worker: int) -> None:
        self.queues[worker] = []
        self.scheduler.add_worker(worker)

    @property
    def occupied(self) -> list[str]:
        return [host for index in self.running.values() for host in self.tasks[index].hosts]

    def follow(self, assignments: list[Assignment]) -> None:
        for assignment in assignments:
            worker = assignment.worker
            assert isinstance(worker, int)
            self.queues[worker] += assignment.indices
            if assignment.last:
                self.last.add(worker)
            waits = 1 if worker in self.last else 2
            if worker not in self.running and len(self.queues[worker]) >= waits:
                index = self.queues[worker].pop(0)
                assert not self.tasks[index].hosts & set(self.occupied), "a host with two jobs"
                self.running[worker] = index
                heapq.heappush(self.ends, (self.now + self.takes[index], worker))

    def step(self) -> None:
        self.now, worker = heapq.heappop(self.ends)
        if worker in self.running:
            self.done.append(self.running.pop(worker))
            self.scheduler.finish(worker)
            self.follow(self.scheduler.assignments(self.now))

    def kill(self, worker: int) -> int | None:
        """A worker dies, another takes its place; gives the test that is lost."""
        running = self.scheduler.remove_worker(worker)
        assert (running.index if running else None) == self.running.pop(worker, None)
        self.ends = [end for end in self.ends if end[1] != worker]
        heapq.heapify(self.ends)
        del self.queues[worker]
        self.join(max(self.queues, default=0) + 100)
        self.follow(self.scheduler.assignments(self.now))
        return running.index if running else None

    def run(self) -> float:
        while self.ends:
            self.step()
        assert self.scheduler.finished
        return self.now


def bound(tasks: Sequence[Task], takes: dict[int, float]) -> float:
    """No order is faster than the host with most to do."""
    hosts = {host for task in tasks for host in task.hosts}
    return max(sum(takes[task.index] for task in tasks if host in task.hosts) for host in hosts)


def matrix(seed: int, wide: Sequence[int] = (1, 1, 2, 2, 4), cells: int = 100) -> list[Task]:
    """Cells on sixteen placements over eight hosts."""
    given = random.Random(seed)
    hosts = [f"h{number}" for number in range(8)]
    placements = [frozenset(given.sample(hosts, given.choice(wide))) for _ in range(16)]
    return [
        Task(index, placements[which], given.uniform(0.5, 10), which)
        for index in range(cells)
        for which in [given.randrange(16)]
    ]


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 16, 40])
@pytest.mark.parametrize("seed", range(10))
def test_every_test_runs_once_and_no_host_twice(seed: int, workers: int) -> None:
    farm = Farm(matrix(seed), workers, seed, noise=0.5)
    farm.run()
    assert sorted(farm.done) == list(range(100))


def test_eight_hosts_are_busy_to_within_a_tenth_of_what_is_possible() -> None:
    ratios = []
    for seed in range(20):
        farm = Farm(matrix(seed), 16, seed, noise=0.2)
        ratios.append(farm.run() / bound(list(farm.tasks.values()), farm.takes))
    assert sorted(ratios)[10] < 1.1, ratios


def test_fewer_workers_than_placements_do_not_wait_for_each_other() -> None:
    ratios = []
    for seed in range(10):
        given = random.Random(seed)
        tasks = [Task(index, frozenset({f"h{index % 50}"}), given.uniform(1, 9), index % 50) for index in range(500)]
        farm = Farm(tasks, 20, seed, noise=0.2)
        ratios.append(farm.run() / (sum(farm.takes.values()) / 20))
    assert sorted(ratios)[5] < 1.25, ratios


def test_a_test_that_needs_all_hosts_is_not_put_off_for_ever() -> None:
    narrow = [Task(index, frozenset({f"h{index % 4}"}), 1.0 + index % 3, index % 4) for index in range(40)]
    wide = Task(40, frozenset(f"h{number}" for number in range(4)), 2.0, "wide")
    farm = Farm([*narrow, wide], 8)
    farm.run()
    assert farm.done.index(40) < 35


def test_the_longest_comes_first() -> None:
    tasks = [Task(index, frozenset({"h"}), seconds) for index, seconds in enumerate([1.0, 5.0, 3.0])]
    farm = Farm(tasks, 2)
    farm.run()
    assert farm.done == [1, 2, 0]


def test_without_a_history_the_order_is_that_of_the_matrix() -> None:
    farm = Farm([Task(index, frozenset({"h"})) for index in range(5)], 2)
    farm.run()
    assert farm.done == list(range(5))


def test_cells_of_a_placement_stay_with_the_worker_that_has_its_nodes() -> None:
    tasks = [Task(index, frozenset({"a"} if index < 4 else {"b"}), 1.0, index < 4) for index in range(8)]
    board = Scheduler(tasks)
    board.add_worker("one")
    board.add_worker("two")
    first = board.assignments(0.0)
    mine = {assignment.worker: {tasks[index].group for index in assignment.indices} for assignment in first}
    assert all(len(groups) == 1 for groups in mine.values())
    assert len(mine) == 2


@pytest.mark.parametrize("seed", range(25))
def test_a_worker_that_dies_costs_the_test_that_it_was_running_and_no_other(seed: int) -> None:
    given = random.Random(seed)
    farm = Farm(matrix(seed, cells=40), 4, seed)
    lost = []
    for _ in range(5):
        for _ in range(given.randrange(1, 5)):
            if farm.ends:
                farm.step()
        worker = given.choice(list(farm.queues))
        if (index := farm.kill(worker)) is not None:
            lost.append(index)
    farm.run()
    assert sorted([*farm.done, *lost]) == list(range(40))


def test_a_test_that_is_to_run_again_does() -> None:
    farm = Farm([Task(0, frozenset({"h"})), Task(1, frozenset({"h"}))], 1)
    farm.step()
    farm.scheduler.requeue(farm.tasks[0])
    assert farm.scheduler.waiting == 1


def test_nothing_to_run() -> None:
    board = Scheduler()
    board.add_worker("one")
    assert board.assignments(0.0) == []
    assert board.finished


def test_ten_thousand_tests_over_a_thousand_hosts() -> None:
    given = random.Random(1)
    tasks = [
        Task(index, frozenset({f"h{where}", f"h{(where * 7 + 1) % 1000}"}), given.uniform(1, 9), where)
        for index in range(10_000)
        for where in [given.randrange(500)]
    ]
    farm = Farm(tasks, 200)
    farm.run()
    assert sorted(farm.done) == list(range(10_000))
