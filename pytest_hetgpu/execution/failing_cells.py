"""The failures of a run for which remedies are tried and jobs are shrunk: one cell of each signature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_hetgpu.analysis.boundary.trials import end_key
from pytest_hetgpu.execution.context import RunContext
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.store.cells import CellRecord, RunRecord


class OutOfTime(Exception):
    """The time of the run was spent during a search."""


@dataclass(frozen=True, slots=True)
class FailingCell:
    """A failure, by its key, and the cell in which it is shown soonest."""

    key: str
    scenario: Scenario
    outcome: Outcome


def failing_cells(run: RunContext, record: RunRecord) -> Iterator[FailingCell]:
    """Yield each failure of a run, with the quickest of its cells; unexpected failures first."""
    scenarios = {(one.matrix, one.id): one for one in run.suite.scenarios}
    found: dict[tuple[str, str], CellRecord] = {}
    for cell in record.cells:
        outcome = cell.outcome
        key = end_key(outcome)
        if not key or (cell.matrix, cell.scenario) not in scenarios or outcome.flaky:
            continue
        known = found.setdefault((cell.matrix, key), cell)
        if _order(cell) < _order(known):
            found[cell.matrix, key] = cell
    for (matrix, key), cell in sorted(found.items(), key=lambda item: _order(item[1])):
        yield FailingCell(key, scenarios[matrix, cell.scenario], cell.outcome)


def _order(cell: CellRecord) -> tuple[bool, float]:
    return not cell.outcome.verdict.fails, cell.outcome.seconds
