"""The tests of cells: their marks, skips and failures, and the run of a cell for the fixtures."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.errors import HetgpuError, NotHere, ProvisionError, StorageError, UsageError
from pytest_hetgpu.execution import cell_errors
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.reporting import messages
from pytest_hetgpu.session import failure_text, hooks, signals
from pytest_hetgpu.session.folder_watch import FolderWatch
from pytest_hetgpu.session.marks import cell_of, marked
from pytest_hetgpu.store.disk_errors import storage_errors
from pytest_hetgpu.store.text import one_line

if TYPE_CHECKING:
    from pytest_hetgpu.cluster.cluster import Cluster
    from pytest_hetgpu.execution.runner import CellRunner
    from pytest_hetgpu.model.outcome import Outcome, RunResult
    from pytest_hetgpu.session.start import OpenedRun
    from pytest_hetgpu.store.cells import CellRecord

LONGEST_REASON = 1000


class CellTests:
    """Hooks for the tests of cells, and what their fixtures call. `opened` is None if nothing is run."""

    def __init__(
        self,
        config: pytest.Config,
        cells: Sequence[Scenario],
        marks: Mapping[str, pytest.Mark],
        matrices: Mapping[str, Matrix],
        opened: OpenedRun | None,
    ) -> None:
        self.config = config
        self.cells = cells
        self.marks = marks
        self.matrices = matrices
        self.opened = opened

    @property
    def runner(self) -> CellRunner:
        """The runner of the open run."""
        assert self.opened is not None
        return self.opened.runner

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Let `-m` and `-k` select cells by axis values, hardware, platforms, family and kind. Marks are shared."""
        marked(items, self.marks, self.matrices)
        # Cells that are kept come last: `-x` does not stop before those that are still to be run.
        items.sort(key=lambda item: self._kept(item) is not None)
        for item in items:
            if self._kept(item):
                item.fixturenames = []  # type: ignore[attr-defined]

    def _kept(self, item: pytest.Item) -> CellRecord | None:
        """Return the cell of a test as an earlier part of the run judged it; None if it is to be run."""
        scenario = cell_of(item) if self.opened and self.opened.kept else None
        return self.opened.kept.get((scenario.matrix, scenario.id)) if self.opened and scenario else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """End the test of a cell that is kept as it ended before, and run nothing."""
        cell = self._kept(pyfuncitem)
        if cell is None:
            return None
        from pytest_hetgpu.execution.resume.resume import reuse_cell

        run = self.runner.context
        pyfuncitem.user_properties += reuse_cell(run, cell)
        if cell.outcome.verdict.fails and not cell.accepted:
            pytest.fail(failure_text.kept(run, cell), pytrace=False)
        if cell.outcome.verdict.value == "known":
            pytest.xfail(one_line(messages.expected_reason(cell.outcome), LONGEST_REASON))
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        scenario = cell_of(item)
        if scenario is not None and scenario.excluded:
            self.skip(item, scenario, f"excluded: {scenario.excluded.reason}", scenario.excluded.issue)

    def skip(self, item: pytest.Item, scenario: Scenario, reason: str, issue: str | None = None) -> NoReturn:
        """Record that a cell is not run, and skip its test."""
        if self.opened:
            with self._recording(item, scenario):
                item.user_properties += self.runner.skip(scenario, reason, issue)
            hooks.report_skip(self.config, scenario, reason)
        pytest.skip(one_line(f"{reason} ({issue})" if issue else reason, LONGEST_REASON))

    def provision(self, item: pytest.Item, scenario: Scenario) -> Cluster:
        """Return the nodes of a cell. Skip the test if something is missing, fail it if they cannot be made."""
        cluster: Cluster | None = None
        error: HetgpuError | None = None
        try:
            with self._recording(item, scenario):
                cluster = self.runner.provision(scenario)
        except (NotHere, ProvisionError) as caught:
            error = caught
        except KeyboardInterrupt:
            with signals.deferred():
                cell_errors.mark_stopped(self.runner.context, scenario)
            raise
        # Outside, so that pytest does not show the chain of errors that the engine's library went through.
        if isinstance(error, ProvisionError):
            self._fail(item, scenario, error)
        if cluster is None:
            self.skip(item, scenario, str(error))
        return cluster

    def _fail(self, item: pytest.Item, scenario: Scenario, error: ProvisionError) -> NoReturn:
        """Record a cell whose nodes could not be made ready, and end its test."""
        with self._recording(item, scenario):
            job, outcome, pairs = self.runner.fail(scenario, error)
        item.user_properties += pairs
        hooks.report_outcome(self.config, scenario, outcome)
        if not outcome.verdict.fails:
            pytest.xfail(one_line(outcome.why, LONGEST_REASON))
        pytest.fail(failure_text.describe(self.runner.context, job, outcome), pytrace=False)

    def run(self, item: pytest.Item, cluster: Cluster) -> tuple[RunResult, Outcome]:
        """Run, judge and record one cell. Its outcome is on the test's report."""
        scenario = cell_of(item)
        assert scenario is not None
        try:
            with self._recording(item, scenario):
                result, outcome, pairs = self.runner.run(cluster)
        except NotHere as busy:
            self.skip(item, scenario, str(busy))
        item.user_properties += pairs
        hooks.report_outcome(self.config, scenario, outcome)
        return result, outcome

    def release(self) -> None:
        """Take back the nodes of a cell."""
        if self.opened is not None:
            self.runner.release()

    @contextmanager
    def _recording(self, item: pytest.Item, scenario: Scenario) -> Iterator[None]:
        """End this cell and the session if the disk takes nothing, or the run folder is lost, while inside."""
        run = self.runner.context
        watch: FolderWatch | None = self.config.pluginmanager.get_plugin(FolderWatch.NAME)
        assert watch is not None
        try:
            with watch.detect_loss(), storage_errors(run.folder.path):
                yield
        except UsageError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        except StorageError as error:
            item.user_properties += cell_errors.mark_unrecorded(run, scenario, error)
            item.session.shouldstop = f"stopped: {error}"
            raise pytest.fail.Exception(f"error (new): not recorded: {error}", pytrace=False) from None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Mark a cell as failed if its test fails by itself (its own check, a fixture)."""
        report = yield
        scenario = cell_of(item)
        if scenario is None or self.opened is None:
            return report
        if report.failed and call.excinfo is not None:
            self._mark_error(item, scenario, report, call.excinfo.exconly(tryshort=True))
        elif report.passed and report.when == "call":
            run = self.runner.context
            outcome = run.outcomes.get((scenario.matrix, scenario.label))
            if outcome and outcome.verdict.fails and not self._kept(item):
                with suppress(pytest.fail.Exception), self._recording(item, scenario):
                    run.journal.accepted(scenario)
        return report

    def _mark_error(self, item: pytest.Item, scenario: Scenario, report: Any, why: str) -> None:
        run, pairs = self.runner.context, None
        with suppress(pytest.fail.Exception), self._recording(item, scenario):
            pairs = cell_errors.mark_error(run, scenario, why)
        if pairs is not None:
            kept = [pair for pair in item.user_properties if pair[0] not in dict(pairs)]
            item.user_properties[:] = report.user_properties = [*kept, *pairs]
            hooks.report_outcome(self.config, scenario, run.outcomes[scenario.matrix, scenario.label])
