"""The next part of a run that is resumed: its nodes may have changed, and its cells may be reused."""

from __future__ import annotations

from pytest_hetgpu.analysis.baseline import Baseline, saved_baseline
from pytest_hetgpu.cluster.drift import keep_first_facts
from pytest_hetgpu.execution.context import RunContext
from pytest_hetgpu.execution.resume.previous_run import PreviousRun
from pytest_hetgpu.store.cells import CellRecord, format_utc
from pytest_hetgpu.store.disk_errors import storage_errors
from pytest_hetgpu.store.properties import Property, to_properties


def begin_part(previous: PreviousRun) -> Baseline | None:
    """Keep the facts of nodes as they are before the next part; return the baseline of the run."""
    folder = previous.journal.folder
    with storage_errors(folder):
        keep_first_facts(folder)
    return saved_baseline(folder)


def reuse_cell(run: RunContext, cell: CellRecord) -> list[Property]:
    """Take over the outcome of a cell from an earlier part; return the properties of its test report."""
    run.outcomes[cell.matrix, cell.label] = cell.outcome
    when = format_utc(cell.started) if cell.started else "in an earlier part"
    return [*to_properties(cell.outcome, label=cell.label, matrix=cell.matrix), ("kept", when)]
