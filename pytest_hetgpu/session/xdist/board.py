"""Who runs what, and what may start now: list scheduling with one reservation. Pure; knows nothing of xdist.

The rule is that of batch schedulers (EASY backfilling: Lifka, "The ANL/IBM SP Scheduling System", 1995): tasks are
ordered, the first one gets the hosts that are free, or, where some are busy, is promised them all for when the last of
them should be free; others start before it only if they do not touch those hosts, or should end before that.

A worker of pytest-xdist starts a test only when it has been told which comes after it. So every worker that runs a task
has one more, parked: it starts when another is parked behind it, or when the worker is told that it was the last.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from pytest_hetgpu.session.xdist.waiting import Ranked, Task, Waiting


@dataclass(frozen=True, slots=True)
class Move:
    """What a worker is to be told: further tests, by index, or (`last`) that there are none."""

    worker: Hashable
    indices: tuple[int, ...] = ()
    last: bool = False


@dataclass(slots=True)
class Seat:
    """One worker: the task that it runs, the one that it keeps, and `groups`, whose nodes it may have standing.

    `released` runs after those, whoever has its hosts.
    """

    running: Task | None = None
    parked: Task | None = None
    released: Task | None = None
    groups: set[Hashable] = field(default_factory=set)


class Board:
    """Tasks that wait, and workers. Every change is followed by `moves`."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self.seats: dict[Hashable, Seat] = {}
        self._waiting = Waiting(tasks)
        # Workers that run nothing: those that keep no task either, and the others by the task that they keep.
        self._empty: dict[Hashable, Seat] = {}
        self._ready: dict[Task, Hashable] = {}

    @property
    def waiting(self) -> int:
        """Tasks that no worker has yet."""
        return self._waiting.count

    @property
    def finished(self) -> bool:
        """Whether nobody has to be told of any further task: what still runs is every worker's last."""
        return not self.waiting and all(seat.parked is None for seat in self.seats.values())

    def join(self, worker: Hashable) -> None:
        """A worker that has nothing to do yet."""
        self.seats[worker] = self._empty[worker] = Seat()

    def leave(self, worker: Hashable) -> Task | None:
        """A worker is gone; gives the task that it was running. What was parked there waits again."""
        seat = self.seats.pop(worker)
        self._empty.pop(worker, None)
        if seat.parked:
            self._ready.pop(seat.parked, None)
            self._waiting.drop(seat.parked)
        if seat.running:
            self._waiting.end(seat.running)
        if seat.running and seat.released:
            self._waiting.put(seat.released)
        return seat.running or seat.released

    def close(self, worker: Hashable) -> None:
        """Others have told a worker that nothing comes any more: what it keeps it runs now, and it gets nothing."""
        seat = self.seats[worker]
        self._empty.pop(worker, None)
        if seat.parked:
            self._ready.pop(seat.parked, None)
            self._waiting.forget(seat.parked)
            seat.parked, seat.released = None, seat.parked

    def ended(self, worker: Hashable) -> None:
        """A worker's task is over."""
        seat = self.seats[worker]
        if seat.running:
            self._waiting.end(seat.running)
        else:
            seat.released = None
        seat.running = None
        if seat.parked:
            self._ready[seat.parked] = worker

    def again(self, task: Task) -> None:
        """A task is to run once more."""
        self._waiting.put(task)

    def give_up(self, nodes: AbstractSet[str]) -> None:
        """Nodes are not used any more: what waits for them, or is parked, is skipped when its turn comes."""
        self._waiting.give_up(nodes)
        for seat in self.seats.values():
            task = seat.parked
            if task and not nodes.isdisjoint(task.nodes):
                self._waiting.forget(task)
                seat.parked = task.skipped
                if task in self._ready:
                    self._ready[task.skipped] = self._ready.pop(task)

    def moves(self, now: float) -> list[Move]:
        """What may start at `now` (seconds of any clock that goes on), as what the workers are to be told."""
        made = []
        while (task := self._startable(now)) is not None:
            made.append(self._start(task, now))
        return made

    def _start(self, task: Task, now: float) -> Move:
        kept = task in self._ready
        worker = self._worker_for(task)
        seat = self.seats[worker]
        seat.parked, seat.running = None, task
        seat.groups.add(task.group)
        self._waiting.start(task, now + task.seconds, kept=kept)
        after = self._waiting.same(task) or self._waiting.beside(task) or self._waiting.elsewhere()
        told = () if kept else (task.index,)
        if after is None:
            return Move(worker, told, last=True)
        self._waiting.keep(after)
        seat.parked = after
        return Move(worker, (*told, after.index))

    def _worker_for(self, task: Task) -> Hashable:
        """The one that keeps it; else an idle one that has its nodes, or fewest of others'."""
        if task in self._ready:
            return self._ready.pop(task)
        self._waiting.take(task)
        groups = {worker: seat.groups for worker, seat in self._empty.items()}
        worker = min(groups, key=lambda one: (task.group not in groups[one], len(groups[one])))
        del self._empty[worker]
        return worker

    def _startable(self, now: float) -> Task | None:
        """The first task, in order, that may start: the first that has to wait for hosts is promised them."""
        free, blocked = self._kept()
        if self._empty:
            free = heapq.merge(free, self._waiting.free)
            blocked += self._waiting.blocked[:1]
        promised = min(blocked, default=None)
        return next((one[1] for one in free if promised is None or self._may_pass(one, promised, now)), None)

    def _kept(self) -> tuple[Iterable[Ranked], list[Ranked]]:
        """What idle workers keep, in order: tasks whose hosts are free, and the others."""
        kept = sorted((self._waiting.order(task), task) for task in self._ready)
        free = [one for one in kept if self._waiting.startable(one[1])]
        return free, [one for one in kept if one not in free]

    def _may_pass(self, one: Ranked, promised: Ranked, now: float) -> bool:
        """Whether a task comes before the one that has a promise, leaves it its hosts, or should be through by then."""
        task, first = one[1], promised[1]
        apart = one < promised or task.hosts.isdisjoint(first.hosts)
        return apart or now + task.seconds <= self._waiting.free_at(first, now)
