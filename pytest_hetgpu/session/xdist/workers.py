"""The scheduler for pytest-xdist: tests start when their hosts are free, the longest first.

Collections and workers are handled by xdist's own `LoadScheduling`. `Scheduler` decides which worker gets which test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScheduling

from pytest_hetgpu.session.xdist.scheduler import Scheduler
from pytest_hetgpu.session.xdist.waiting import Task

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class HostScheduling(LoadScheduling):  # type: ignore[misc]  # xdist is not typed
    """xdist's scheduling interface over a `Scheduler`.

    `tasks` turns a collection of node ids into tasks, `quarantined` returns the nodes that are not used any more.
    """

    def __init__(
        self,
        config: Any,
        log: Any,
        tasks: Callable[[Sequence[str]], list[Task]],
        quarantined: Callable[[], AbstractSet[str]] = frozenset,
    ) -> None:
        super().__init__(config, log)
        self._tasks_of = tasks
        self._quarantined = quarantined
        self._tasks: list[Task] = []
        self._scheduler: Scheduler | None = None
        self._closed: set[WorkerController] = set()

    @property
    def tests_finished(self) -> bool:
        """Whether no worker gets another test."""
        return self.collection_is_completed and (self._scheduler is None or self._scheduler.finished)

    @property
    def has_pending(self) -> bool:
        """Whether tests are running, or waiting."""
        scheduler = self._scheduler
        states = scheduler.workers.values() if scheduler else ()
        return bool(scheduler and (scheduler.waiting or any(s.running or s.parked or s.released for s in states)))

    def schedule(self) -> None:
        """Begin once all first workers have collected, or include a further worker."""
        if self._scheduler is None:
            if not self._check_nodes_have_same_collection():
                self.log("**Different tests collected, aborting run**")
                return
            self.collection = next(iter(self.node2collection.values()))
            self._tasks = self._tasks_of(self.collection)
            self._scheduler = Scheduler(self._tasks)
        for node in self.nodes:
            if node in self.node2collection and node not in self._scheduler.workers:
                self._scheduler.add_worker(node)
        self._go_on()

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Record that a worker has ended a test."""
        assert self._scheduler is not None
        self.node2pending[node].remove(item_index)
        self._scheduler.finish(node)
        if nodes := self._quarantined():
            self._scheduler.quarantine(nodes)
        self._go_on()

    def mark_test_pending(self, item: str) -> None:
        """Run a test once more, as requested after a crash of its worker."""
        assert self._scheduler is not None
        assert self.collection is not None
        self._scheduler.requeue(self._tasks[self.collection.index(item)])
        self._go_on()

    def remove_node(self, node: WorkerController) -> str | None:
        """Remove a worker and return its running test. Others run the tests that it had not begun."""
        self.node2pending.pop(node)
        if self._scheduler is None or node not in self._scheduler.workers:
            return None
        running = self._scheduler.remove_worker(node)
        self._go_on()
        assert self.collection is not None
        return self.collection[running.index] if running else None

    def _go_on(self) -> None:
        assert self._scheduler is not None
        # With -x, or where too many workers crashed, xdist tells them to end, and does not say so here.
        for one in self.nodes:
            if one.shutting_down and one not in self._closed and one in self._scheduler.workers:
                self._closed.add(one)
                self._scheduler.close_worker(one)
        for assignment in self._scheduler.assignments(time.monotonic()):
            node: Any = assignment.worker
            if assignment.indices:
                self.node2pending[node].extend(assignment.indices)
                node.send_runtest_some(list(assignment.indices))
            if assignment.last:
                self._closed.add(node)
                node.shutdown()
