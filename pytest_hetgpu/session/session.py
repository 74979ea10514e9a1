"""A pytest session that runs matrices: opens the run, hands each cell on, ends in reports."""

from __future__ import annotations

import math
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_hetgpu.errors import HetgpuError, NotHere, ProvisionError, StorageError, UsageError
from pytest_hetgpu.execution import unjudged
from pytest_hetgpu.execution.resume.rules import RULES, Rule
from pytest_hetgpu.extensions.package_data import packaged
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.planning.suite import Beside, Suite
from pytest_hetgpu.reporting import messages
from pytest_hetgpu.session import failure_text, hooks, signals
from pytest_hetgpu.session.finish import end
from pytest_hetgpu.session.folder_watch import FolderWatch
from pytest_hetgpu.session.interrupted_cells import InFlight
from pytest_hetgpu.session.marks import cell_of, marked, registered
from pytest_hetgpu.session.redacted_reports import RedactedReports
from pytest_hetgpu.session.settings import OFF, OPTIONS, Settings
from pytest_hetgpu.store.disk_errors import writing
from pytest_hetgpu.store.redaction.redact import forget, learn, redact
from pytest_hetgpu.store.text import one_line, visible

if TYPE_CHECKING:
    from pytest_hetgpu.cluster.cluster import Cluster
    from pytest_hetgpu.cluster.facts_cache import EarlyLook
    from pytest_hetgpu.execution.runner import Beginning, Recorder
    from pytest_hetgpu.model.outcome import Outcome, RunResult
    from pytest_hetgpu.store.cells import CellRecord

LONGEST_REASON = 1000


class Session:
    """What pytest asks of a run; a plugin itself. `recorder` is None where nothing is to be run (collection, plan)."""

    def __init__(self, config: pytest.Config, settings: Settings, suite: Suite) -> None:
        self.config = config
        self.settings = settings
        self.suite = suite
        self.cells = hooks.select(config, suite.select(settings.cell))
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.stop = signals.OrderlyStop()
        self.recorder: Recorder | None = None
        self.marks: dict[str, pytest.Mark] = {}
        self.kept: Mapping[tuple[str, str], CellRecord] = {}

    @classmethod
    def open(cls, config: pytest.Config, settings: Settings) -> Session:
        """Reads the matrices and opens the run. pytest.UsageError (exit 4) for anything that cannot be run."""
        learn(os.environ)
        config.pluginmanager.register(RedactedReports(), "hetgpu-redacted-reports")
        config.add_cleanup(forget)
        try:
            suite = Suite.load(
                settings.matrix,
                config.rootpath,
                timeout=settings.timeout,
                environ=os.environ,
                beside=Beside(settings.inventory, settings.knowledge),
            )
            learn({}, *suite.settings())
            session = cls(config, settings, suite)
            session.marks = registered(config, suite, pytest.mark)
            if config.args_source is not config.ArgsSource.ARGS:
                config.args[:] = [str(packaged("scenarios"))]
            if not (settings.plan or config.option.collectonly):
                session.open_run()
        except HetgpuError as error:
            raise pytest.UsageError(redact(str(error))) from None
        return session

    def open_run(self) -> None:
        """A folder for what is left; a worker joins its controller's run. What only a run needs is imported here."""
        early = self.look_early()
        from pytest_hetgpu.session import start

        if self.worker is not None:
            opened = start.join(self.suite, self.settings, self.worker)
        else:
            from pytest_hetgpu.cluster.leases.hold import ready

            ready(os.environ)
            opens = start.start if self.settings.resume is None else start.take_up
            opened = opens(self.suite, self.settings, self.config.invocation_params.dir, self.beginning())
        self.recorder, self.kept = opened.recorder, opened.kept
        self.recorder.early = early
        self.watch = FolderWatch(self.config, self.recorder.journal, speaks=self.worker is None)
        self.config.pluginmanager.register(self.watch, "hetgpu-folder-watch")
        self.configure(self.recorder)
        if self.worker is None:
            self.show(self.recorder, opened.taken_up, opened.remarks)

    def look_early(self) -> EarlyLook | None:
        """Begins to look at this machine, which takes longer than loading the rest, if this process will run cells."""
        elsewhere = self.worker is not None or getattr(self.config.option, "dist", "no") != "no"
        if elsewhere or self.settings.preflight == OFF or self.settings.resume is not None:
            return None
        from pytest_hetgpu.cluster.facts_cache import look_early

        return look_early(self.suite, self.cells)

    def beginning(self) -> Beginning:
        """How this session was started, for its run's journal."""
        from pytest_hetgpu.execution.resume import basis
        from pytest_hetgpu.execution.runner import Beginning

        arguments = [str(argument) for argument in self.config.invocation_params.args]
        given = {one.flag: self.settings.told(one) for one in OPTIONS if RULES[one.name] is Rule.SAME}
        return Beginning(arguments, self.options, basis.of(self.suite, self.tests, given, os.environ))

    def show(self, recorder: Recorder, taken_up: str, remarks: list[str]) -> None:
        """Registers what the terminal is told while the run goes on, which begins with these words."""
        from pytest_hetgpu.session.terminal.results import Live

        live = Live(self.config, self.cells, recorder.folder.path, taken_up)
        live.trouble += remarks
        live.before = recorder.baseline.side if recorder.baseline else recorder.history
        self.config.pluginmanager.register(live, "hetgpu-live")
        if self.settings.live != OFF:
            from pytest_hetgpu.session.terminal.watching import watch

            watch(self.config, self.settings.live, live, recorder.folder.path)

    @property
    def tests(self) -> tuple[str, ...]:
        """Files and folders of scenarios that were named."""
        given = self.config.args if self.config.args_source is self.config.ArgsSource.ARGS else ()
        return tuple(dict.fromkeys(argument.partition("::")[0] for argument in given))

    @property
    def options(self) -> tuple[str, ...]:
        """What is to be typed besides its matrix so that a cell is the same again: scenarios of one's own, options."""
        if self.worker is not None:
            return tuple(self.worker["hetgpu_options"])
        if self.recorder is not None:
            return tuple(self.recorder.options)
        return (*self.tests, *(("-m", "hetgpu") if self.tests else ()), *self.settings.typed)

    def configure(self, recorder: Recorder) -> None:
        """Hands on what the user asked for."""
        recorder.preflight = self.settings.preflight
        recorder.change_job = partial(hooks.change_job, self.config)
        self.bound(recorder)
        recorder.debug_rerun = self.settings.debug_rerun
        recorder.anonymous = self.settings.anonymise
        recorder.wire = self.settings.wire
        recorder.options = self.options
        recorder.history = self.settings.remembered_in(recorder.folder.path.parent, self.config.invocation_params.dir)

    def bound(self, recorder: Recorder) -> None:
        """Hands on what cells and the run may take; when the run's time is over is the controller's word."""
        from pytest_hetgpu.session.retry_settings import asked

        deadline = self.worker["hetgpu_deadline"] if self.worker is not None else None
        recorder.output = asked(self.settings, recorder.trying, recorder.health, deadline)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """`-m` and `-k` know a cell by its axis values, hardware, platforms, family and kind. Marks are shared."""
        marked(items, self.marks, self.suite.documents)
        # What is kept comes last: what is still to be run is not held up by `-x`.
        items.sort(key=lambda item: self.kept_of(item) is not None)
        for item in items:
            if self.kept_of(item):
                item.fixturenames = []  # type: ignore[attr-defined]

    def kept_of(self, item: pytest.Item) -> CellRecord | None:
        """The cell of a test as an earlier part of the run judged it, None where it is to be run."""
        scenario = cell_of(item) if self.kept else None
        return self.kept.get((scenario.matrix, scenario.id)) if scenario else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """A test whose cell is kept ends as it did, and runs nothing."""
        cell = self.kept_of(pyfuncitem)
        if cell is None or self.recorder is None:
            return None
        from pytest_hetgpu.execution.resume import continuing

        pyfuncitem.user_properties += continuing.keep(self.recorder, cell)
        if cell.outcome.verdict.fails and not cell.accepted:
            pytest.fail(failure_text.kept(self.recorder, cell), pytrace=False)
        if cell.outcome.verdict.value == "known":
            pytest.xfail(one_line(messages.known_for(cell.outcome), LONGEST_REASON))
        return True

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["hetgpu_run"] = str(self.recorder.folder.path) if self.recorder else ""
        node.workerinput["hetgpu_part"] = self.recorder.journal.part if self.recorder else 0
        node.workerinput["hetgpu_owner"] = self.recorder.guard.label if self.recorder else ""
        node.workerinput["hetgpu_deadline"] = self.recorder.trying.budget.deadline if self.recorder else math.inf
        node.workerinput["hetgpu_options"] = list(self.options)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> object | None:
        """Hosts decide what starts when, unless the user chose another distribution than xdist's usual one."""
        if self.recorder is None or config.getoption("dist") != "load":
            return None
        from pytest_hetgpu.session.xdist.made import scheduler

        return scheduler(self.suite, self.cells, self.recorder.history, self.recorder.health)(config, log)

    def pytest_sessionstart(self) -> None:
        if self.recorder is not None:
            self.stop.install()
            if self.worker is None:
                self.config.pluginmanager.register(InFlight(self.config, self.stop.outlets), "hetgpu-in-flight")

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        self.stop.outlets.leave_dead()
        if self.recorder is not None and self.worker is None:
            signals.pass_on(self.recorder.journal)
            terminal = self.config.pluginmanager.get_plugin("terminalreporter")
            if terminal is not None and self.config.pluginmanager.has_plugin("dsession"):
                from pytest_hetgpu.session.xdist.stopped_workers import keep_awake

                keep_awake(lambda line: terminal.write_line(f"\n{line}", yellow=True))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if not self.settings.plan:
            return None
        scenarios = [scenario for item in session.items if (scenario := cell_of(item))]
        writer = self.config.get_terminal_writer()
        for line in messages.planned(self.suite, scenarios, partial(hooks.change_planned, self.config)):
            writer.line(visible(redact(line)))
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        scenario = cell_of(item)
        if scenario is not None and scenario.excluded:
            self.skip(item, scenario, f"excluded: {scenario.excluded.reason}", scenario.excluded.issue)

    def skip(self, item: pytest.Item, scenario: Scenario, reason: str, issue: str | None = None) -> NoReturn:
        """Records that a cell is not run, and skips the test with the reason."""
        if self.recorder:
            with self.recording(item, scenario):
                item.user_properties += self.recorder.skip(scenario, reason, issue)
            hooks.report_skip(self.config, scenario, reason)
        pytest.skip(one_line(f"{reason} ({issue})" if issue else reason, LONGEST_REASON))

    def provision(self, item: pytest.Item, scenario: Scenario) -> Cluster:
        """The nodes of a cell; a missing node, stack or capability is a skip, one that cannot be made an error."""
        assert self.recorder is not None
        cluster: Cluster | None = None
        error: HetgpuError | None = None
        try:
            with self.recording(item, scenario):
                cluster = self.recorder.provision(scenario)
        except (NotHere, ProvisionError) as caught:
            error = caught
        # Outside, so that pytest does not show the chain of errors that the engine's library went through.
        if isinstance(error, ProvisionError):
            self.broken(item, scenario, error)
        if cluster is None:
            self.skip(item, scenario, str(error))
        return cluster

    def broken(self, item: pytest.Item, scenario: Scenario, error: ProvisionError) -> NoReturn:
        """Records a cell whose nodes could not be made ready, and ends its test."""
        assert self.recorder is not None
        with self.recording(item, scenario):
            job, outcome, pairs = self.recorder.broken(scenario, error)
        item.user_properties += pairs
        hooks.report_outcome(self.config, scenario, outcome)
        if not outcome.verdict.fails:
            pytest.xfail(one_line(outcome.why, LONGEST_REASON))
        pytest.fail(failure_text.describe(self.recorder, job, outcome), pytrace=False)

    def run(self, item: pytest.Item, cluster: Cluster) -> tuple[RunResult, Outcome]:
        """Runs, judges and records one cell; its outcome goes onto the test's report."""
        assert self.recorder is not None
        scenario = cell_of(item)
        assert scenario is not None
        try:
            with self.recording(item, scenario):
                result, outcome, pairs = self.recorder.run(cluster)
        except NotHere as busy:
            self.skip(item, scenario, str(busy))
        item.user_properties += pairs
        hooks.report_outcome(self.config, scenario, outcome)
        return result, outcome

    @contextmanager
    def recording(self, item: pytest.Item, scenario: Scenario) -> Iterator[None]:
        """Inside it a disk that takes nothing, or a lost run folder, is the end of this cell and of the session."""
        assert self.recorder is not None
        try:
            with self.watch.present(), writing(self.recorder.folder.path):
                yield
        except UsageError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        except StorageError as error:
            item.user_properties += unjudged.unrecorded(self.recorder, scenario, error)
            item.session.shouldstop = f"stopped: {error}"
            raise pytest.fail.Exception(f"error (new): not recorded: {error}", pytrace=False) from None

    def release(self) -> None:
        """Takes back a cell's nodes."""
        if self.recorder is not None:
            self.recorder.release()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """A test of a cell that fails by itself (its own check, a fixture) has not passed, whatever the run showed."""
        report = yield
        scenario = cell_of(item)
        if report.failed and scenario is not None and self.recorder is not None and call.excinfo is not None:
            pairs = None
            with suppress(pytest.fail.Exception), self.recording(item, scenario):
                pairs = unjudged.overrule(self.recorder, scenario, call.excinfo.exconly(tryshort=True))
            if pairs is not None:
                kept = [pair for pair in item.user_properties if pair[0] not in dict(pairs)]
                item.user_properties[:] = report.user_properties = [*kept, *pairs]
                hooks.report_outcome(self.config, scenario, self.recorder.outcomes[scenario.matrix, scenario.label])
        elif report.passed and report.when == "call" and scenario is not None and self.recorder is not None:
            outcome = self.recorder.outcomes.get((scenario.matrix, scenario.label))
            if outcome and outcome.verdict.fails and not self.kept_of(item):
                with suppress(pytest.fail.Exception), self.recording(item, scenario):
                    self.recorder.journal.accepted(scenario)
        return report

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            # Whoever is in a hurry, or fails at the very end, does not cost the reports.
            try:
                if self.recorder is not None:
                    live = self.config.pluginmanager.get_plugin("hetgpu-live")
                    session.exitstatus = end(self.recorder, live, session.exitstatus)
            except KeyboardInterrupt:
                session.exitstatus = pytest.ExitCode.INTERRUPTED
            finally:
                self.stop.restore()
