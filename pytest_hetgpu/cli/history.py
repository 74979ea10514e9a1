"""`hetgpu history`: prints since when cells fail, over the newest runs of a history."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.reporting.history_lines import history_lines
from pytest_hetgpu.store.past_runs import past_runs

if TYPE_CHECKING:
    from pytest_hetgpu.store.history_place import HistoryPlace

MOST_RUNS = 10_000


def run(place: HistoryPlace, last: int, print_line: Callable[[str], object]) -> int:
    """Print the cells that were not always the same in the newest `last` runs; return 0.

    Raises UsageError for a number of runs below 1, and HistoryError for a history that cannot be read.
    """
    if not 1 <= last <= MOST_RUNS:
        raise UsageError(f"--last: {last} is not a number of runs from 1 to {MOST_RUNS:,}")
    for line in history_lines(past_runs(place, last)):
        print_line(line)
    return 0
