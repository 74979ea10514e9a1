"""The failures of a run for which remedies are tried and jobs are shrunk: one cell of each signature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_hetgpu.analysis.boundary.trials import key_of
from pytest_hetgpu.execution.context import RunContext
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.store.cells import CellRecord, RunRecord

_NOT_OF_THE_CELL = (Kind.UNKNOWN, Kind.SKIPPED)


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
        failed = outcome.kind.failed and outcome.kind not in _NOT_OF_THE_CELL and not outcome.away
        if not failed or (cell.matrix, cell.scenario) not in scenarios or outcome.flaky:
            continue
        known = found.setdefault((cell.matrix, key_of(outcome)), cell)
        if _order(cell) < _order(known):
            found[cell.matrix, key_of(outcome)] = cell
    for (matrix, key), cell in sorted(found.items(), key=lambda item: _order(item[1])):
        yield FailingCell(key, scenarios[matrix, cell.scenario], cell.outcome)


def _order(cell: CellRecord) -> tuple[bool, float]:
    return not cell.outcome.verdict.fails, cell.outcome.seconds
