"""How a session opens its run: a new one, an earlier one's next part, or as a worker of one that is open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_hetgpu.analysis import judge
from pytest_hetgpu.execution.resume import earlier, kept
from pytest_hetgpu.execution.runner import Beginning, Recorder
from pytest_hetgpu.reporting import report
from pytest_hetgpu.session.settings import OFF, Settings
from pytest_hetgpu.store.text import display_path

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.baseline import Baseline
    from pytest_hetgpu.model.job import Job, Scenario
    from pytest_hetgpu.planning.matrix_set import MatrixSet
    from pytest_hetgpu.store.cells import CellRecord


@dataclass(frozen=True)
class Opened:
    """A run that is open: `kept` by matrix and id what earlier parts judged, `taken_up` and `remarks` lines on it."""

    recorder: Recorder
    kept: Mapping[tuple[str, str], CellRecord] = field(default_factory=dict)
    taken_up: str = ""
    remarks: list[str] = field(default_factory=list)


def join(suite: MatrixSet, settings: Settings, worker: Mapping[str, Any]) -> Opened:
    """The run that a worker's controller has opened, by what it says of it (`Session.pytest_configure_node`)."""
    run, part = Path(worker["hetgpu_run"]), int(worker["hetgpu_part"])
    recorder = Recorder.join(suite, run, worker["workerid"], part, worker["hetgpu_owner"])
    if settings.baseline not in (None, OFF):
        from pytest_hetgpu.analysis.baseline import saved_baseline

        recorder.baseline = saved_baseline(recorder.folder.path)
    return Opened(recorder, earlier.kept_before(run, part))


def start(suite: MatrixSet, settings: Settings, here: Path, begun: Beginning) -> Opened:
    """A new run below the folder of reports, which is told from `here`. UsageError, StorageError."""
    reports = here / settings.reports
    baseline: Baseline | None = None
    remarks: list[str] = []
    if settings.baseline not in (None, OFF):
        # Before this run is the latest itself.
        from pytest_hetgpu.analysis.baseline import select_baseline

        history = settings.remembered_in(reports, here)
        baseline, remarks = select_baseline(str(settings.baseline), reports, history, suite)
    return Opened(_reporting(Recorder.start(suite, reports, begun, baseline)), remarks=remarks)


def take_up(cells: Iterable[Scenario], suite: MatrixSet, settings: Settings, here: Path, begun: Beginning) -> Opened:
    """The next part of the run that `--hetgpu-resume` names, with these cells. UsageError, StorageError."""
    from pytest_hetgpu.execution.resume.continuing import next_part

    folder = earlier.find(str(settings.resume), here / settings.reports, here)
    before = earlier.take_up(folder, begun.basis)
    said = kept.told(display_path(folder), cells, before.record)
    return Opened(_reporting(next_part(suite, before, begun)), before.kept, said, list(kept.remarks(before.record)))


def _reporting(recorder: Recorder) -> Recorder:
    """Return a recorder that also prepares for the reports, which its process builds."""
    recorder.meanwhile = _get_ready
    return recorder


def _get_ready(job: Job) -> None:
    report.get_ready(lambda: judge.get_ready(job))
