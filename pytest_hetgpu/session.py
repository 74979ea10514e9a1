"""A pytest session that runs matrices: opens the run, hands each cell on, ends in reports."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_hetgpu import interruption, registry, wording
from pytest_hetgpu.errors import HetgpuError, NotHere, ProvisionError
from pytest_hetgpu.model import Scenario
from pytest_hetgpu.options import OFF, Settings
from pytest_hetgpu.suite import Beside, Suite, packaged

if TYPE_CHECKING:
    from pytest_hetgpu.cluster import Cluster
    from pytest_hetgpu.evidence import Outcome, RunResult
    from pytest_hetgpu.recorder import Recorder
    from pytest_hetgpu.speed.baseline import Baseline

EXIT_NOTHING_RAN = 10


class Session:
    """What pytest asks of a run; a plugin itself. `recorder` is None where nothing is to be run (collection, plan)."""

    def __init__(self, config: pytest.Config, settings: Settings, suite: Suite) -> None:
        self.config = config
        self.settings = settings
        self.suite = suite
        self.cells = suite.select(settings.cell)
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.stop = interruption.OrderlyStop()
        self.recorder: Recorder | None = None
        self.marks: dict[str, pytest.Mark] = {}

    @classmethod
    def open(cls, config: pytest.Config, settings: Settings) -> Session:
        """Reads the matrices and opens the run. pytest.UsageError (exit 4) for anything that cannot be run."""
        try:
            suite = Suite.load(
                settings.matrix,
                config.rootpath,
                timeout=settings.timeout,
                environ=os.environ,
                beside=Beside(settings.inventory, settings.knowledge),
            )
            session = cls(config, settings, suite)
            session.register_marks()
            if config.args_source is not config.ArgsSource.ARGS:
                config.args[:] = [str(packaged("scenarios"))]
            if not (settings.plan or config.option.collectonly):
                session.open_run()
        except HetgpuError as error:
            raise pytest.UsageError(str(error)) from None
        return session

    def open_run(self) -> None:
        """A folder for what is left; a worker joins its controller's run. What only a run needs is imported here."""
        from pytest_hetgpu.recorder import Recorder

        if self.worker is not None:
            self.recorder = Recorder.join(self.suite, Path(self.worker["hetgpu_run"]), self.worker["workerid"])
            self.configure(self.recorder)
            if self.settings.baseline not in (None, OFF):
                from pytest_hetgpu.speed.baseline import kept_with

                self.recorder.baseline = kept_with(self.recorder.folder.path)
            return
        from pytest_hetgpu.live import Live

        arguments = [str(argument) for argument in self.config.invocation_params.args]
        reports = self.config.invocation_params.dir / self.settings.reports
        baseline, remarks = self.find_baseline(reports)
        self.recorder = Recorder.start(self.suite, reports, arguments, self.options, baseline)
        self.configure(self.recorder)
        live = Live(self.config, self.cells, self.recorder.folder.path)
        live.trouble += remarks
        self.config.pluginmanager.register(live, "hetgpu-live")

    def find_baseline(self, reports: Path) -> tuple[Baseline | None, list[str]]:
        """What this run is held against, with remarks on it, before it is the latest run itself. Raises UsageError."""
        if self.settings.baseline in (None, OFF):
            return None, []
        from pytest_hetgpu.compare.find import Places
        from pytest_hetgpu.reporting.events import MatrixFile
        from pytest_hetgpu.reporting.folder import HISTORY
        from pytest_hetgpu.speed import baseline

        matrices = [MatrixFile(name, one.file, one.sha256) for name, one in self.suite.documents.items()]
        cells = [(cell.matrix, cell.id) for cell in self.suite.scenarios]
        places = Places(reports, self.history(reports) or reports / HISTORY)
        found = baseline.of(str(self.settings.baseline), places, matrices, cells)
        return found, list(baseline.remarks(found, matrices, os.uname().nodename))

    def history(self, reports: Path) -> Path | None:
        """The file that runs of a reports folder are remembered in; None where they are not."""
        given = self.settings.history
        if given == OFF:
            return None
        if given is None:
            from pytest_hetgpu.reporting.folder import HISTORY

            return reports / HISTORY
        return self.config.invocation_params.dir / given

    @property
    def options(self) -> tuple[str, ...]:
        """What is to be typed besides its matrix so that a cell is the same again: scenarios of one's own, options."""
        if self.worker is not None:
            return tuple(self.worker["hetgpu_options"])
        if self.recorder is not None:
            return tuple(self.recorder.options)
        given = self.config.args if self.config.args_source is self.config.ArgsSource.ARGS else ()
        files = tuple(dict.fromkeys(argument.partition("::")[0] for argument in given))
        return (*files, *(("-m", "hetgpu") if files else ()), *self.settings.typed)

    def configure(self, recorder: Recorder) -> None:
        """Hands on what the user asked for."""
        recorder.preflight = self.settings.preflight
        recorder.debug_rerun = self.settings.debug_rerun
        recorder.anonymous = self.settings.anonymise
        recorder.wire = self.settings.wire
        recorder.options = self.options
        recorder.history = self.history(recorder.folder.path.parent)

    def register_marks(self) -> None:
        """Makes a mark of every axis value, platform and family; a value named like a mark that exists is an error."""
        taken = {line.split(":")[0].split("(")[0].strip() for line in self.config.getini("markers")}
        names = dict.fromkeys(
            (*registry.names("hardware"), *registry.names("transports"), *registry.names("workloads"))
        )
        for document in self.suite.documents.values():
            for value in (value for axis in document.axes for value in axis.values):
                if value.name in taken:
                    clash = f"{value.axis} {value.name!r} has the name of a registered pytest mark; rename it"
                    raise pytest.UsageError(f"{value.origin}: {clash}")
            names.update(dict.fromkeys(document.words()))
        for name in names.keys() - taken:
            self.config.addinivalue_line("markers", f"{name}: of a hetgpu matrix")
        self.marks = {name: getattr(pytest.mark, name).mark for name in ("hetgpu", *names)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """`-m` and `-k` know a cell by its axis values, hardware, platforms, family and kind. Marks are shared."""
        shared: dict[tuple[str, str, str], list[pytest.Mark]] = {}
        cell = self.marks["hetgpu"]
        for item in items:
            scenario = cell_of(item)
            if scenario is None:
                continue
            item.own_markers.append(cell)
            item.keywords["hetgpu"] = cell
            for axis, name in zip(scenario.axes, scenario.values, strict=True):
                marks = shared.get((scenario.matrix, axis, name))
                if marks is None:
                    words = self.suite.documents[scenario.matrix].words_of(axis, name)
                    marks = shared[scenario.matrix, axis, name] = [self.marks[word] for word in words]
                item.own_markers.extend(marks)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["hetgpu_run"] = str(self.recorder.folder.path) if self.recorder else ""
        node.workerinput["hetgpu_options"] = list(self.options)

    def pytest_sessionstart(self) -> None:
        if self.recorder is not None:
            self.stop.install()
            if self.worker is None:
                self.config.pluginmanager.register(InFlight(self.config), "hetgpu-in-flight")

    def pytest_keyboard_interrupt(self) -> None:
        if self.recorder is not None and self.worker is None:
            interruption.pass_on(self.recorder.folder.path)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if not self.settings.plan:
            return None
        scenarios = [scenario for item in session.items if (scenario := cell_of(item))]
        writer = self.config.get_terminal_writer()
        for line in wording.planned(self.suite, scenarios):
            writer.line(line)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        scenario = cell_of(item)
        if scenario is not None and scenario.excluded:
            self.skip(item, scenario, f"excluded: {scenario.excluded.reason}", scenario.excluded.issue)

    def skip(self, item: pytest.Item, scenario: Scenario, reason: str, issue: str | None = None) -> NoReturn:
        """Records that a cell is not run, and skips the test with the reason."""
        if self.recorder:
            item.user_properties += self.recorder.skip(scenario, reason, issue)
        pytest.skip(f"{reason} ({issue})" if issue else reason)

    def provision(self, item: pytest.Item, scenario: Scenario) -> Cluster:
        """The nodes of a cell; a missing node, stack or capability is a skip, one that cannot be made an error."""
        assert self.recorder is not None
        cluster: Cluster | None = None
        error: HetgpuError | None = None
        try:
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
        job, outcome, pairs = self.recorder.broken(scenario, error)
        item.user_properties += pairs
        if not outcome.verdict.fails:
            pytest.xfail(outcome.why)
        pytest.fail(self.recorder.describe(job, outcome), pytrace=False)

    def run(self, item: pytest.Item, cluster: Cluster) -> tuple[RunResult, Outcome]:
        """Runs, judges and records one cell; its outcome goes onto the test's report."""
        assert self.recorder is not None
        result, outcome, pairs = self.recorder.run(cluster)
        item.user_properties += pairs
        return result, outcome

    def release(self) -> None:
        """Takes back a cell's nodes."""
        if self.recorder is not None:
            self.recorder.release()

    def describe(self, cluster: Cluster, outcome: Outcome) -> str:
        """The text of a failing test."""
        assert self.recorder is not None
        return self.recorder.describe(cluster.job, outcome)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """A test of a cell that fails by itself (its own check, a fixture) has not passed, whatever the run showed."""
        report = yield
        scenario = cell_of(item)
        if report.failed and scenario is not None and self.recorder is not None and call.excinfo is not None:
            pairs = self.recorder.overrule(scenario, call.excinfo.exconly(tryshort=True))
            if pairs is not None:
                kept = [pair for pair in item.user_properties if pair[0] not in dict(pairs)]
                item.user_properties[:] = report.user_properties = [*kept, *pairs]
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.stop.restore()
        if self.recorder is None:
            return
        try:
            self.recorder.close()
        finally:
            # Whoever is in a hurry, or an engine that fails at the very end, does not cost the reports.
            live = self.config.pluginmanager.get_plugin("hetgpu-live")
            if self.worker is None:
                trouble = self.recorder.report()
                if live:
                    live.trouble += trouble
        if live and live.nothing_ran and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = EXIT_NOTHING_RAN


class InFlight:
    """Gives a cell that was cut short a failing report; without one, pytest's own JUnit would show a pass."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.open: dict[str, pytest.TestReport] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, object]:
        # A signal in the middle would leave some plugins with the report and some without; it waits until all have it.
        with interruption.postponed():
            if report.when == "setup" and report.passed and "hetgpu" in report.keywords:
                self.open[report.nodeid] = report
            elif report.when != "setup":
                self.open.pop(report.nodeid, None)
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        for report in list(self.open.values()):
            cut = pytest.TestReport(
                nodeid=report.nodeid,
                location=report.location,
                keywords=report.keywords,
                outcome="failed",
                longrepr="cut short: this cell was running when the session was stopped; it has no verdict",
                when="call",
            )
            # What xdist adds: JUnit tells the reports of a test apart by the worker they came from.
            vars(cut).update({name: value for name, value in vars(report).items() if name not in vars(cut)})
            self.config.hook.pytest_runtest_logreport(report=cut)


def cell_of(item: pytest.Item) -> Scenario | None:
    """The scenario a test was made for."""
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get("scenario") if callspec else None
    return found if isinstance(found, Scenario) else None
