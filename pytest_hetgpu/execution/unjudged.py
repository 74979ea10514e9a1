"""What becomes of a cell without its judges: where its test fails by itself, and where nothing can be recorded."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_hetgpu.errors import StorageError
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.model.outcome import Finding, Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.disk_errors import JUDGE as STORAGE
from pytest_hetgpu.store.properties import Property, to_properties

if TYPE_CHECKING:
    from pytest_hetgpu.execution.runner import Recorder


def overrule(recorder: Recorder, scenario: Scenario, why: str) -> list[Property] | None:
    """Records that a cell's test failed for a reason of its own; None where its outcome is a failure already."""
    # It imports the judges, which only a cell that runs needs.
    from pytest_hetgpu.analysis.judge import outcome_of_failed_test

    cell = (scenario.matrix, scenario.label)
    before = recorder.outcomes.get(cell)
    if before is None:
        recorder.journal.planned(scenario, position=recorder.suite.position(*cell))
    elif before.verdict.fails:
        return None
    outcome = outcome_of_failed_test(before, why)
    recorder.outcomes[cell] = outcome
    recorder.journal.judged(scenario, outcome)
    return to_properties(outcome, label=scenario.label, matrix=scenario.matrix)


def unrecorded(recorder: Recorder, scenario: Scenario, error: StorageError) -> list[Property]:
    """Records, in the room that is kept back for it, that what a cell left could not be."""
    finding = Finding(STORAGE, Kind.ERROR, f"not recorded: {error}")
    outcome = Outcome(Kind.ERROR, Verdict.NEW, finding.why, findings=(finding,))
    recorder.outcomes[scenario.matrix, scenario.label] = outcome
    recorder.journal.release_reserved_space()
    with suppress(StorageError):
        recorder.journal.planned(scenario, position=recorder.suite.position(scenario.matrix, scenario.label))
        recorder.journal.judged(scenario, outcome)
    return to_properties(outcome, label=scenario.label, matrix=scenario.matrix)
