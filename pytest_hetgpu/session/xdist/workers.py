"""The scheduler that pytest-xdist is handed: tests start when their hosts are free, the longest first.

It is xdist's own `LoadScheduling` for what collections and workers are; who is sent what, and when, is the board's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScheduling

from pytest_hetgpu.session.xdist.board import Board
from pytest_hetgpu.session.xdist.waiting import Task

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class HostScheduling(LoadScheduling):  # type: ignore[misc]  # xdist is not typed
    """xdist's scheduling interface over a board.

    `tasks` turns a collection of node ids into tasks, `given_up` tells the nodes that are not used any more.
    """

    def __init__(
        self,
        config: Any,
        log: Any,
        tasks: Callable[[Sequence[str]], list[Task]],
        given_up: Callable[[], AbstractSet[str]] = frozenset,
    ) -> None:
        super().__init__(config, log)
        self._tasks_of = tasks
        self._given_up = given_up
        self._tasks: list[Task] = []
        self._board: Board | None = None
        self._closed: set[WorkerController] = set()

    @property
    def tests_finished(self) -> bool:
        """Whether every worker may be told that nothing comes any more."""
        return self.collection_is_completed and (self._board is None or self._board.finished)

    @property
    def has_pending(self) -> bool:
        """Whether tests are running, or to be run."""
        board = self._board
        seats = board.seats.values() if board else ()
        return bool(board and (board.waiting or any(s.running or s.parked or s.released for s in seats)))

    def schedule(self) -> None:
        """All first workers have collected, or a further one has."""
        if self._board is None:
            if not self._check_nodes_have_same_collection():
                self.log("**Different tests collected, aborting run**")
                return
            self.collection = next(iter(self.node2collection.values()))
            self._tasks = self._tasks_of(self.collection)
            self._board = Board(self._tasks)
        for node in self.nodes:
            if node in self.node2collection and node not in self._board.seats:
                self._board.join(node)
        self._go_on()

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """A worker is through with a test."""
        assert self._board is not None
        self.node2pending[node].remove(item_index)
        self._board.ended(node)
        if nodes := self._given_up():
            self._board.give_up(nodes)
        self._go_on()

    def mark_test_pending(self, item: str) -> None:
        """A test is to run once more: somebody asked for that when its worker crashed."""
        assert self._board is not None
        assert self.collection is not None
        self._board.again(self._tasks[self.collection.index(item)])
        self._go_on()

    def remove_node(self, node: WorkerController) -> str | None:
        """A worker is gone; gives the test that it was running. What it had not begun others will run."""
        self.node2pending.pop(node)
        if self._board is None or node not in self._board.seats:
            return None
        running = self._board.leave(node)
        self._go_on()
        assert self.collection is not None
        return self.collection[running.index] if running else None

    def _go_on(self) -> None:
        assert self._board is not None
        # With -x, or where too many workers crashed, xdist tells them to end, and does not say so here.
        for one in self.nodes:
            if one.shutting_down and one not in self._closed and one in self._board.seats:
                self._closed.add(one)
                self._board.close(one)
        for move in self._board.moves(time.monotonic()):
            node: Any = move.worker
            if move.indices:
                self.node2pending[node].extend(move.indices)
                node.send_runtest_some(list(move.indices))
            if move.last:
                self._closed.add(node)
                node.shutdown()
