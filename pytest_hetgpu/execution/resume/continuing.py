"""A recorder of a run that goes on: the next part of it, and cells that are kept."""

from __future__ import annotations

from pytest_hetgpu.execution.resume.earlier import Earlier
from pytest_hetgpu.execution.runner import Beginning, Recorder
from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.store.cells import CellRecord, utc
from pytest_hetgpu.store.disk_errors import writing
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.properties import Pair, to_pairs


def next_part(suite: MatrixSet, earlier: Earlier, begun: Beginning) -> Recorder:
    """Begins the next part of a run; it is held against the baseline that the run has. Else as `Recorder.start`."""
    from pytest_hetgpu.analysis.baseline import kept_with
    from pytest_hetgpu.cluster.drift import set_first

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
