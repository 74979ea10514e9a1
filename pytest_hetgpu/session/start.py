"""The start of a session: open a new run, the next part of an earlier one, or join one as a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_hetgpu.analysis import judge
from pytest_hetgpu.cluster.cleanup.tracker import track_resources
from pytest_hetgpu.execution.context import Invocation, RunContext
from pytest_hetgpu.execution.resume import previous_run, reuse
from pytest_hetgpu.execution.runner import CellRunner
from pytest_hetgpu.reporting import report
from pytest_hetgpu.session.run_options import run_options
from pytest_hetgpu.session.settings import OFF, Settings
from pytest_hetgpu.store.disk_errors import storage_errors
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.text import display_path

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.baseline import Baseline
    from pytest_hetgpu.model.job import Job, Scenario
    from pytest_hetgpu.planning.matrix_set import MatrixSet
    from pytest_hetgpu.store.cells import CellRecord
    from pytest_hetgpu.store.events import Sampled

MAIN = "main"


@dataclass(frozen=True)
class RunRequest:
    """The inputs of a run before it is open. Relative paths start at `here`."""

    suite: MatrixSet
    settings: Settings
    here: Path
    #: Command-line options, besides the matrix, that run a cell the same way again.
    typed: tuple[str, ...]
    cells: Sequence[Scenario]
    change_job: Callable[[Scenario, Job], Job]
    #: The samples that the cells come from.
    samples: Sequence[Sampled] = ()

    @property
    def reports(self) -> Path:
        """The folder that new runs are made in."""
        return self.here / self.settings.reports


@dataclass(frozen=True)
class OpenedRun:
    """A run that is open. `kept` are the cells of earlier parts that are not run again, by matrix and id."""

    runner: CellRunner
    kept: Mapping[tuple[str, str], CellRecord] = field(default_factory=dict)
    #: A line about the resumed run, for the terminal.
    resumed: str = ""
    #: Further lines for the end of the terminal's output.
    remarks: tuple[str, ...] = ()


def start(request: RunRequest, invocation: Invocation) -> OpenedRun:
    """Open a new run in the folder of reports. Raise UsageError or StorageError."""
    baseline: Baseline | None = None
    remarks: list[str] = []
    if request.settings.baseline not in (None, OFF):
        # Before this run is the latest itself.
        from pytest_hetgpu.analysis.baseline import select_baseline

        history = request.settings.remembered_in(request.reports, request.here)
        chosen = str(request.settings.baseline)
        baseline, remarks = select_baseline(chosen, request.reports, history, request.suite)
    folder = RunFolder.create(request.reports)
    if baseline:
        with storage_errors(folder.path):
            baseline.save(folder.path)
    runner = _begin(request, Journal(folder.path, MAIN, sole=True), baseline, invocation)
    return OpenedRun(runner, remarks=tuple(remarks))


def resume(request: RunRequest, invocation: Invocation) -> OpenedRun:
    """Open the next part of the run that `--hetgpu-resume` names. Raise UsageError or StorageError."""
    from pytest_hetgpu.execution.resume.resume import begin_part

    folder = previous_run.find_run(str(request.settings.resume), request.reports, request.here)
    previous = previous_run.resume(folder, invocation.fingerprint)
    line = reuse.describe(display_path(folder), request.cells, previous.record)
    runner = _begin(request, previous.journal, begin_part(previous), invocation)
    return OpenedRun(runner, previous.reusable, line, tuple(reuse.remarks(previous.record)))


def join(request: RunRequest, worker: Mapping[str, Any]) -> OpenedRun:
    """Join the run of a pytest-xdist controller, whose `pytest_configure_node` filled `worker`."""
    run, part = Path(worker["hetgpu_run"]), int(worker["hetgpu_part"])
    journal = Journal(run, worker["workerid"], part)
    baseline: Baseline | None = None
    if request.settings.baseline not in (None, OFF):
        from pytest_hetgpu.analysis.baseline import saved_baseline

        baseline = saved_baseline(run)
    history = request.settings.remembered_in(run.parent, request.here)
    options = run_options(request.settings, request.typed, history, baseline, worker["hetgpu_deadline"])
    context = RunContext(
        suite=request.suite,
        folder=RunFolder(run),
        journal=journal,
        guard=track_resources(run.name, worker["hetgpu_owner"]),
        options=options,
        change_job=request.change_job,
    )
    return OpenedRun(CellRunner(context), previous_run.reusable_before(run, part))


def _begin(request: RunRequest, journal: Journal, baseline: Baseline | None, invocation: Invocation) -> CellRunner:
    """Begin a part of a run in the process that builds its reports, too."""
    run = journal.folder
    typed = (*request.typed, *(("--hetgpu-baseline", display_path(baseline.path_in(run))) if baseline else ()))
    history = request.settings.remembered_in(run.parent, request.here)
    context = RunContext(
        suite=request.suite,
        folder=RunFolder(run),
        journal=journal,
        guard=track_resources(run.name),
        options=run_options(request.settings, typed, history, baseline),
        change_job=request.change_job,
        meanwhile=_get_ready,
    )
    context.begin(invocation)
    for sample in request.samples:
        context.journal.sampled(sample)
    return CellRunner(context)


def _get_ready(job: Job) -> None:
    report.get_ready(lambda: judge.get_ready(job))
