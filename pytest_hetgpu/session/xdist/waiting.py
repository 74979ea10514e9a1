"""Waiting tasks in the order in which they should start, separated by whether their hosts are free."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Task:
    """One test: the hosts that it needs alone, its expected seconds, and the `group` of tests that share nodes.

    `nodes` are the names of its nodes in a quarantine.
    """

    index: int
    hosts: frozenset[str] = frozenset()
    seconds: float = 1.0
    group: Hashable = None
    nodes: frozenset[str] = frozenset()

    @property
    def skipped(self) -> Task:
        """The task after one of its nodes was quarantined: it ends at once and needs no host."""
        return replace(self, hosts=frozenset(), seconds=0.0, nodes=frozenset())


Order = tuple[float, int, float, int]
Ranked = tuple[Order, Task]
"""A task with its place in the order: no two are equal, for the index is the order's last word."""

_Bucket = tuple[Hashable, frozenset[str]]


class Waiting:
    """The waiting tasks. The longest of those that differ only in seconds (a bucket) represents the others.

    `free` and `blocked` are these representatives, in order: tasks whose hosts have the most work first, then wide
    ones, then long ones. A running or parked task counts as work of its hosts until it ends. A change on a host touches
    only the buckets of that host, so that the cost does not grow with the number of hosts.
    """

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self.free: list[Ranked] = []
        self.blocked: list[Ranked] = []
        self.count = 0
        self._busy: dict[str, float] = {}
        self._load: dict[str, float] = defaultdict(float)
        self._tasks: dict[_Bucket, list[Task]] = defaultdict(list)
        self._at: dict[str, set[_Bucket]] = defaultdict(set)
        self._ranked: dict[_Bucket, tuple[list[Ranked], Ranked]] = {}
        self._kept: Counter[str] = Counter()
        for task in sorted(tasks, key=_by_seconds):
            self._add(task)
        for bucket in self._tasks:
            self._rank(bucket)

    def put(self, task: Task) -> None:
        """Add a task."""
        self._add(task)
        self._rank_at(task)

    def take(self, task: Task) -> None:
        """Remove a task that a worker gets. It still counts as work of its hosts."""
        bucket = _bucket(task)
        tasks = self._tasks[bucket]
        del tasks[bisect_left(tasks, _by_seconds(task), key=_by_seconds)]
        self.count -= 1
        self._rank(bucket)

    def keep(self, task: Task) -> None:
        """Remove a task that a worker gets for later. Its hosts are reserved until it starts or is dropped."""
        self.take(task)
        self._kept.update(task.hosts)

    def start(self, task: Task, until: float, *, kept: bool) -> None:
        """Mark the hosts of a taken or kept task as busy until `until`."""
        if kept:
            self._kept.subtract(task.hosts)
        self._busy.update(dict.fromkeys(task.hosts, until))
        self._rank_at(task)

    def end(self, task: Task) -> None:
        """Free the hosts of a started task, whose work is done."""
        for host in task.hosts:
            del self._busy[host]
        self._lift(task)

    def drop(self, task: Task) -> None:
        """Put back a task that was kept and never started."""
        self.forget(task)
        self.put(task)

    def forget(self, task: Task) -> None:
        """Free the reserved hosts of a kept task that will not start."""
        self._kept.subtract(task.hosts)
        self._lift(task)

    def quarantine(self, nodes: AbstractSet[str]) -> None:
        """Skip the tasks on these nodes: they wait for no host."""
        quarantined = (
            bucket for bucket, tasks in self._tasks.items() if tasks and not nodes.isdisjoint(tasks[0].nodes)
        )
        for task in [task for bucket in quarantined for task in self._tasks[bucket]]:
            self.take(task)
            self._lift(task)
            self.put(task.skipped)

    def startable(self, task: Task) -> bool:
        """Return whether the hosts of a task are free."""
        return self._busy.keys().isdisjoint(task.hosts)

    def free_at(self, task: Task, now: float) -> float:
        """Return the time at which the hosts of a task should be free."""
        return max([now, *(self._busy[host] for host in task.hosts if host in self._busy)])

    def order(self, task: Task) -> Order:
        """Return the place of a task among all."""
        before = max((self._load[host] for host in task.hosts), default=0.0)
        return -before, -len(task.hosts), -task.seconds, task.index

    def same(self, task: Task) -> Task | None:
        """Return the longest task with the same nodes."""
        tasks = self._tasks.get(_bucket(task))
        return tasks[-1] if tasks else None

    def beside(self, task: Task) -> Task | None:
        """Return the first task in order that needs any of its hosts."""
        buckets = {bucket for host in task.hosts for bucket in self._at[host]}
        return min(self._ranked[bucket][1] for bucket in buckets)[1] if buckets else None

    def elsewhere(self) -> Task | None:
        """Return the first task on hosts that are free and not reserved; else the last of all."""
        apart = (task for _, task in self.free if not any(self._kept[host] for host in task.hosts))
        last = max((*self.free[-1:], *self.blocked[-1:]), default=None)
        return next(apart, last and last[1])

    def _lift(self, task: Task) -> None:
        for host in task.hosts:
            self._load[host] -= task.seconds
        self._rank_at(task)

    def _add(self, task: Task) -> None:
        insort(self._tasks[_bucket(task)], task, key=_by_seconds)
        self.count += 1
        for host in task.hosts:
            self._load[host] += task.seconds
            self._at[host].add(_bucket(task))

    def _rank_at(self, task: Task) -> None:
        """Update the places of all buckets on a task's hosts."""
        for bucket in {_bucket(task)}.union(*(self._at[host] for host in task.hosts)):
            self._rank(bucket)

    def _rank(self, bucket: _Bucket) -> None:
        """Update the place of a bucket; remove it if it is empty."""
        if bucket in self._ranked:
            ranked, one = self._ranked.pop(bucket)
            del ranked[bisect_left(ranked, one)]
        tasks = self._tasks.get(bucket)
        if tasks:
            ranked = self.free if self.startable(tasks[-1]) else self.blocked
            one = self.order(tasks[-1]), tasks[-1]
            insort(ranked, one)
            self._ranked[bucket] = ranked, one
        else:
            for host in bucket[1]:
                self._at[host].discard(bucket)


def _bucket(task: Task) -> _Bucket:
    return task.group, task.hosts


def _by_seconds(task: Task) -> tuple[float, int]:
    return task.seconds, -task.index
