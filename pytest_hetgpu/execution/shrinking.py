"""The smallest job that fails like a cell: fewer sizes, iterations, ranks and nodes, then fewer settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from pytest_hetgpu.analysis.boundary.trials import key_of, smallest, smallest_text
from pytest_hetgpu.errors import MatrixError, NotHere, ProvisionError
from pytest_hetgpu.execution.failing_cells import FailingCell, OutOfTime, failing_cells
from pytest_hetgpu.execution.further_run import FurtherRun, further_run, last_number
from pytest_hetgpu.execution.runner import CellRunner
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.sizes import show_size
from pytest_hetgpu.planning.variant import Variant, job_settings
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.events import Shrunk

SMALLEST = "smallest"
_TIMES = 3


class Shrinking:
    """The searches of one run. `tell` is called with the label of each cell and a line about its smallest job."""

    def __init__(self, runner: CellRunner, tell: Callable[[str, str], object]) -> None:
        self._run = runner.context
        self._tell = tell
        self._record = read_run(self._run.folder.path)
        self._number = last_number(self._run, SMALLEST)

    def run(self) -> None:
        """Shrink one cell of each failure, until the time of the run is spent."""
        done = {(one.matrix, one.key) for one in self._record.smallest}
        for cell in failing_cells(self._run, self._record):
            if (cell.scenario.matrix, cell.key) in done or self._run.options.budget.spent:
                continue
            search = _SmallestJob(cell, self._ran)
            try:
                found = search.run(self._run.suite.job(cell.scenario))
            except OutOfTime:
                return
            if found is not None:
                self._run.journal.tried(found)
                self._tell(cell.scenario.label, f"smallest job for {cell.key}: {smallest_text(found)}")

    def _ran(self, cell: FailingCell, variant: Variant) -> FurtherRun | None:
        """Run a variant; None if it cannot be run."""
        if self._run.options.budget.spent:
            raise OutOfTime
        self._number += 1
        try:
            ran = further_run(self._run, cell.scenario, variant, f"{SMALLEST}-{self._number}")
        except (NotHere, ProvisionError, MatrixError):
            return None
        if ran is None:
            raise OutOfTime
        return ran


class _SmallestJob:
    """The search for one failure. A job is the same failure only if its key is the same."""

    def __init__(self, cell: FailingCell, run: Callable[[FailingCell, Variant], FurtherRun | None]) -> None:
        self._cell = cell
        self._run = run
        self._tries = 0
        self._last: FurtherRun | None = None

    def run(self, job: Job) -> Shrunk | None:
        """Return the smallest job; None if the cell does not fail in this way again."""
        variant = Variant()
        if not self._same(variant):
            return None
        for step in _steps(job):
            for changed in step:
                if self._same(candidate := _with(variant, changed)):
                    variant = candidate
                    break
        names = tuple(job_settings(job))
        needed = smallest(names, lambda kept: self._same(_without(variant, names, kept)))
        variant = _without(variant, names, needed)
        same = sum(self._same(variant) for _ in range(_TIMES))
        ran = self._last
        return None if ran is None else self._event(ran, job, needed, same)

    def _same(self, variant: Variant) -> bool:
        self._tries += 1
        ran = self._run(self._cell, variant)
        same = ran is not None and ran.outcome.kind.failed and key_of(ran.outcome) == self._cell.key
        self._last = ran if same else self._last
        return same

    def _event(self, ran: FurtherRun, before: Job, needed: Sequence[str], same: int) -> Shrunk:
        settings, job = job_settings(before), ran.job
        sizes = dict.fromkeys(show_size(one.size) for one in job.demand.points if one.size)
        return Shrunk(
            job.matrix,
            job.scenario,
            self._cell.key,
            sum(node.ranks for node in job.nodes),
            len(job.nodes) if job.is_multi_host else 1,
            (f"size{'s' * (len(sizes) > 1)} {' '.join(sizes)}",) if sizes else (),
            tuple(f"{name}={settings[name]}" for name in needed),
            len(settings),
            self._tries,
            same,
            _TIMES,
            ran.attempt.log,
            job.command.argv,
        )


def _steps(job: Job) -> Iterator[Sequence[Variant]]:
    """Yield the changes that make each run cheaper; of each step the first that keeps the failure is taken."""
    sizes = sorted({point.size for point in job.demand.points if point.size})
    if len(sizes) > 1:
        chosen = dict.fromkeys((sizes[0], sizes[-1], *sizes[1:-1]))
        yield [Variant({"sizes": [show_size(size)]}) for size in chosen]
    if len(dtypes := dict.fromkeys(point.dtype for point in job.demand.points)) > 1:
        yield [Variant({"dtype": [dtype]}) for dtype in dtypes]
    if job.demand.measured and job.demand.external is None:
        yield [Variant({"iterations": "1", "warmup": "0", "repeats": "1"})]
    if any(node.ranks > 1 for node in job.nodes):
        yield [Variant({"ranks_per_node": "1"})]
    names = tuple(node.hardware.name for node in job.nodes)
    if len(names) > 2:
        yield [Variant(nodes=pair) for pair in dict.fromkeys(pairwise(names))]


def _with(one: Variant, more: Variant) -> Variant:
    return replace(one, settings={**one.settings, **more.settings}, nodes=more.nodes or one.nodes)


def _without(one: Variant, names: Sequence[str], kept: Sequence[str]) -> Variant:
    return replace(one, dropped=frozenset(names) - frozenset(kept))
