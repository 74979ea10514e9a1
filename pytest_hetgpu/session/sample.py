"""The sample of cells that `--hetgpu-strategy` asks for: chosen once, by the process that builds the reports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_hetgpu.session.settings import Settings
from pytest_hetgpu.store.events import Sampled

if TYPE_CHECKING:
    from pytest_hetgpu.model.job import Scenario
    from pytest_hetgpu.planning.matrix_set import MatrixSet
    from pytest_hetgpu.planning.sampling import MatrixSample
    from pytest_hetgpu.store.history_place import HistoryPlace


def choose(
    settings: Settings, suite: MatrixSet, cells: tuple[Scenario, ...], reports: Path, here: Path
) -> tuple[tuple[Scenario, ...], tuple[Sampled, ...]]:
    """Return the cells to run, and the samples that they come from: those of the resumed run, or one of each matrix.

    Raises UsageError if there are too many cells, or no run to resume.
    """
    if settings.resume is not None and (resumed := _resumed(settings, cells, reports, here)):
        return resumed
    from pytest_hetgpu.planning.sampling import sample_matrix

    failed = _failed_before(settings.remembered_in(reports, here), suite)
    made = [
        sample_matrix(suite.matrices[matrix], mine, settings.strategy, failed)
        for matrix in suite.matrices
        if (mine := [cell for cell in cells if cell.matrix == matrix])
    ]
    return tuple(cell for one in made for cell in one.chosen), tuple(map(_event, made))


def _event(one: MatrixSample) -> Sampled:
    from pytest_hetgpu.store.packed_cells import axes_of, pack

    names = one.allowed[0].axes if one.allowed else ()
    axes = {name: tuple(values) for name, values in axes_of(names, (cell.values for cell in one.allowed)).items()}
    chosen, allowed = (pack(axes, (cell.values for cell in cells)) for cells in (one.chosen, one.allowed))
    return Sampled(one.matrix, one.strategy, one.text, axes, chosen, allowed)


def _resumed(
    settings: Settings, cells: Sequence[Scenario], reports: Path, here: Path
) -> tuple[tuple[Scenario, ...], tuple[Sampled, ...]] | None:
    """Return the cells that an earlier part of the run chose; None if it has no sample."""
    from pytest_hetgpu.execution.resume.previous_run import find_run
    from pytest_hetgpu.store.cells import read_run
    from pytest_hetgpu.store.packed_cells import unpack

    record = read_run(find_run(str(settings.resume), reports, here))
    samples = {name: one for name, one in record.samples.items() if one.strategy == settings.strategy}
    chosen = {(name, values) for name, one in samples.items() for values in unpack(one.axes, one.chosen)}
    found = tuple(cell for cell in cells if (cell.matrix, cell.values) in chosen)
    return (found, tuple(samples.values())) if found else None


def _failed_before(history: HistoryPlace | None, suite: MatrixSet) -> Collection[str]:
    """Return the ids of cells that failed in the run before."""
    if history is None:
        return ()
    from pytest_hetgpu.store.history import previous_run

    before = previous_run(history, "", suite.matrices)
    return {cell.scenario for cell in before.cells if cell.kind.failed} if before else ()
