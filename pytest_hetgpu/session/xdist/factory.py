"""The scheduler of one session."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_hetgpu.execution.retry.health import NodeHealth
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.session.xdist.tasks import Seconds, nodes_of, tasks
from pytest_hetgpu.session.xdist.workers import HostScheduling

if TYPE_CHECKING:
    from pytest_hetgpu.store.history_place import HistoryPlace

_SOME_TIME = 1.0  # seconds between two looks at the health of nodes: journals of many workers are many files


def scheduler(
    suite: MatrixSet, cells: Sequence[Scenario], history: HistoryPlace | None, health: NodeHealth
) -> Callable[[Any, Any], HostScheduling]:
    """Return the scheduler of a session as a function of pytest's configuration and xdist's log.

    Hosts of `cells` come from the suite's inventory, their times from the `history`, if any. Nodes that `health`
    reports as quarantined are not used any more.
    """
    bound = nodes_of(suite.matrices, suite.inventory)
    made = partial(tasks, cells=cells, nodes=bound, seconds=_seconds(history))
    quarantined = _now_and_then(health.quarantined)
    return lambda config, log: HostScheduling(config, log, made, quarantined)


def _now_and_then(look: Callable[[], AbstractSet[str]]) -> Callable[[], AbstractSet[str]]:
    """Return a function that returns the new items of `look`, and nothing if it is called again too soon."""
    due, seen = time.monotonic(), set[str]()

    def fresh() -> AbstractSet[str]:
        nonlocal due
        if time.monotonic() < due:
            return frozenset()
        found = look() - seen
        seen.update(found)
        due = time.monotonic() + _SOME_TIME
        return found

    return fresh


def _seconds(history: HistoryPlace | None) -> Seconds:
    from pytest_hetgpu.store import history as kept

    if history is None:
        return {}
    try:
        return kept.last_durations(history)
    except kept.HistoryError:
        # The end of the run says what is wrong with it.
        return {}
