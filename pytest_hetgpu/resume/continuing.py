"""A recorder of a run that goes on: the next part of it, and cells that are kept."""

from __future__ import annotations

import shlex

from pytest_hetgpu.recorder import Beginning, Recorder
from pytest_hetgpu.reporting.cells import CellRecord, utc
from pytest_hetgpu.reporting.folder import RunFolder, read_job
from pytest_hetgpu.reporting.pairs import Pair, to_pairs
from pytest_hetgpu.reporting.serial import RecordError
from pytest_hetgpu.reporting.storage import writing
from pytest_hetgpu.resume.earlier import Earlier
from pytest_hetgpu.suite import Suite


def next_part(suite: Suite, earlier: Earlier, begun: Beginning) -> Recorder:
    """Begins the next part of a run; it is held against the baseline that the run has. Else as `Recorder.start`."""
    from pytest_hetgpu.resume.versions import set_first
    from pytest_hetgpu.speed.baseline import kept_with

    with writing(earlier.journal.folder):
        set_first(earlier.journal.folder)
    recorder = Recorder(suite, RunFolder(earlier.journal.folder), earlier.journal)
    recorder.begin(begun, kept_with(earlier.journal.folder))
    return recorder


def keep(recorder: Recorder, cell: CellRecord) -> list[Pair]:
    """Leaves a cell as an earlier part judged it; gives what its test report is to hold."""
    recorder.outcomes[cell.matrix, cell.label] = cell.outcome
    when = utc(cell.started) if cell.started else "in an earlier part"
    return [*to_pairs(cell.outcome, label=cell.label, matrix=cell.matrix), ("kept", when)]


def described(recorder: Recorder, cell: CellRecord) -> str:
    """The text of the failing test of a cell that is kept."""
    try:
        told = recorder.describe(read_job(recorder.folder.job(cell.label)), cell.outcome)
    except RecordError:
        told = f"{cell.outcome.kind.value} ({cell.outcome.verdict.value}): {cell.outcome.why}\n"
        told += f"  command: {shlex.join(cell.argv)}\n" if cell.argv else ""
        told += f"  again:   {recorder.again(cell.matrix, cell.label)}"
    return f"{told}\n  kept as an earlier part of this run judged it"
