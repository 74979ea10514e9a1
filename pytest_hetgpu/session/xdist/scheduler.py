"""List scheduling with one reservation: which task runs on which worker, and when. Pure; independent of xdist.

The rule is that of batch schedulers (EASY backfilling: Lifka, "The ANL/IBM SP Scheduling System", 1995). Tasks are
ordered. The first one gets its hosts. If some are busy, it gets a reservation of all for the time when the last should
be free. Other tasks start before it only if they need none of these hosts, or should end before that time.

A worker of pytest-xdist starts a test only once it has the next one. So each worker that runs a task has a parked
task, too. It starts when another task is parked behind it, or when the worker learns that it was the last.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from pytest_hetgpu.session.xdist.waiting import Ranked, Task, Waiting


@dataclass(frozen=True, slots=True)
class Assignment:
    """The orders for one worker: further tests, by index, or (`last`) that there are none."""

    worker: Hashable
    indices: tuple[int, ...] = ()
    last: bool = False


@dataclass(slots=True)
class WorkerState:
    """The state of one worker: its running task, its parked task, and `groups`, whose nodes it may have open.

    `released` runs after those, even if another task has its hosts.
    """

    running: Task | None = None
    parked: Task | None = None
    released: Task | None = None
    groups: set[Hashable] = field(default_factory=set)


class Scheduler:
    """Waiting tasks and workers. Call `assignments` after each change."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self.workers: dict[Hashable, WorkerState] = {}
        self._waiting = Waiting(tasks)
        # Workers that run nothing: those that keep no task either, and the others by the task that they keep.
        self._empty: dict[Hashable, WorkerState] = {}
        self._ready: dict[Task, Hashable] = {}

    @property
    def waiting(self) -> int:
        """Number of tasks that no worker has yet."""
        return self._waiting.count

    @property
    def finished(self) -> bool:
        """Whether no worker needs a further order: each running task is the last of its worker."""
        return not self.waiting and all(state.parked is None for state in self.workers.values())

    def add_worker(self, worker: Hashable) -> None:
        """Add a worker that has nothing to do yet."""
        self.workers[worker] = self._empty[worker] = WorkerState()

    def remove_worker(self, worker: Hashable) -> Task | None:
        """Remove a worker and return its running task. Its parked task waits again."""
        state = self.workers.pop(worker)
        self._empty.pop(worker, None)
        if state.parked:
            self._ready.pop(state.parked, None)
            self._waiting.drop(state.parked)
        if state.running:
            self._waiting.end(state.running)
        if state.running and state.released:
            self._waiting.put(state.released)
        return state.running or state.released

    def close_worker(self, worker: Hashable) -> None:
        """Close a worker that gets no other task: it runs its parked one now."""
        state = self.workers[worker]
        self._empty.pop(worker, None)
        if state.parked:
            self._ready.pop(state.parked, None)
            self._waiting.forget(state.parked)
            state.parked, state.released = None, state.parked

    def finish(self, worker: Hashable) -> None:
        """Record the end of a worker's task."""
        state = self.workers[worker]
        if state.running:
            self._waiting.end(state.running)
        else:
            state.released = None
        state.running = None
        if state.parked:
            self._ready[state.parked] = worker

    def requeue(self, task: Task) -> None:
        """Add a task that is to run once more."""
        self._waiting.put(task)

    def quarantine(self, nodes: AbstractSet[str]) -> None:
        """Stop using nodes: waiting and parked tasks on them are skipped when their turn comes."""
        self._waiting.quarantine(nodes)
        for state in self.workers.values():
            task = state.parked
            if task and not nodes.isdisjoint(task.nodes):
                self._waiting.forget(task)
                state.parked = task.skipped
                if task in self._ready:
                    self._ready[task.skipped] = self._ready.pop(task)

    def assignments(self, now: float) -> list[Assignment]:
        """Return the orders for workers at `now`, in seconds of a monotonic clock."""
        made = []
        while (task := self._startable(now)) is not None:
            made.append(self._start(task, now))
        return made

    def _start(self, task: Task, now: float) -> Assignment:
        kept = task in self._ready
        worker = self._worker_for(task)
        state = self.workers[worker]
        state.parked, state.running = None, task
        state.groups.add(task.group)
        self._waiting.start(task, now + task.seconds, kept=kept)
        after = self._waiting.same(task) or self._waiting.beside(task) or self._waiting.elsewhere()
        told = () if kept else (task.index,)
        if after is None:
            return Assignment(worker, told, last=True)
        self._waiting.keep(after)
        state.parked = after
        return Assignment(worker, (*told, after.index))

    def _worker_for(self, task: Task) -> Hashable:
        """Return the worker that has the task parked; else an idle one with its nodes, or the fewest others."""
        if task in self._ready:
            return self._ready.pop(task)
        self._waiting.take(task)
        groups = {worker: state.groups for worker, state in self._empty.items()}
        worker = min(groups, key=lambda one: (task.group not in groups[one], len(groups[one])))
        del self._empty[worker]
        return worker

    def _startable(self, now: float) -> Task | None:
        """Return the first task, in order, that may start. The first one with busy hosts gets the reservation."""
        free, blocked = self._kept()
        if self._empty:
            free = heapq.merge(free, self._waiting.free)
            blocked += self._waiting.blocked[:1]
        promised = min(blocked, default=None)
        return next((one[1] for one in free if promised is None or self._may_pass(one, promised, now)), None)

    def _kept(self) -> tuple[Iterable[Ranked], list[Ranked]]:
        """Return the parked tasks of idle workers, in order: those with free hosts, and the others."""
        kept = sorted((self._waiting.order(task), task) for task in self._ready)
        free = [one for one in kept if self._waiting.startable(one[1])]
        return free, [one for one in kept if one not in free]

    def _may_pass(self, one: Ranked, promised: Ranked, now: float) -> bool:
        """Return whether a task precedes the one with the reservation, needs other hosts, or should end in time."""
        task, first = one[1], promised[1]
        apart = one < promised or task.hosts.isdisjoint(first.hosts)
        return apart or now + task.seconds <= self._waiting.free_at(first, now)
