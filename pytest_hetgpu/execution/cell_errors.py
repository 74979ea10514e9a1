"""Outcomes of cells that the judges do not decide: errors of a test itself, of the disk, and interrupts."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_hetgpu.errors import StorageError
from pytest_hetgpu.model.job import Job, Scenario
from pytest_hetgpu.model.outcome import STOPPED, Finding, Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.disk_errors import JUDGE as STORAGE
from pytest_hetgpu.store.properties import Property, to_properties

if TYPE_CHECKING:
    from pytest_hetgpu.execution.context import RunContext


def mark_error(run: RunContext, scenario: Scenario, why: str) -> list[Property] | None:
    """Record that the test of a cell failed by itself. Return None if the cell has failed already."""
    # It imports the judges, which only a cell that runs needs.
    from pytest_hetgpu.analysis.judge import outcome_of_failed_test

    cell = (scenario.matrix, scenario.label)
    before = run.outcomes.get(cell)
    if before is None:
        run.journal.planned(scenario, position=run.position(scenario))
    elif before.verdict.fails:
        return None
    outcome = outcome_of_failed_test(before, why)
    run.outcomes[cell] = outcome
    run.journal.judged(scenario, outcome)
    return to_properties(outcome, label=scenario.label, matrix=scenario.matrix)


def mark_stopped(run: RunContext, cell: Job | Scenario) -> None:
    """Record that an interrupt ended a cell before its command, or between two launches, unless it has an outcome."""
    if (cell.matrix, cell.label) in run.outcomes:
        return
    outcome = stopped()
    run.outcomes[cell.matrix, cell.label] = outcome
    with suppress(StorageError, OSError):
        if isinstance(cell, Scenario):
            run.journal.planned(cell, position=run.position(cell))
        run.journal.judged(cell, outcome)


def stopped(signal: str = "") -> Outcome:
    """Return the outcome of a cell that an interrupt ended, by the name of a signal if it is known."""
    finding = Finding("completeness", Kind.UNKNOWN, f"{STOPPED} ({signal})" if signal else STOPPED)
    return Outcome(Kind.UNKNOWN, Verdict.NOT_RUN, finding.why, findings=(finding,))


def mark_unrecorded(run: RunContext, scenario: Scenario, error: StorageError) -> list[Property]:
    """Record, in reserved disk space, that the results of a cell could not be recorded."""
    finding = Finding(STORAGE, Kind.ERROR, f"not recorded: {error}")
    outcome = Outcome(Kind.ERROR, Verdict.NEW, finding.why, findings=(finding,))
    run.outcomes[scenario.matrix, scenario.label] = outcome
    run.journal.release_reserved_space()
    with suppress(StorageError):
        run.journal.planned(scenario, position=run.position(scenario))
        run.journal.judged(scenario, outcome)
    return to_properties(outcome, label=scenario.label, matrix=scenario.matrix)
