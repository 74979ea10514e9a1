"""A pytest session that runs matrices: opens the run's folder, records every cell, ends in reports."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_hetgpu import interruption, registry, wording
from pytest_hetgpu.cluster import Cluster, provision
from pytest_hetgpu.errors import HetgpuError, NotHere
from pytest_hetgpu.evidence import Outcome, RunResult
from pytest_hetgpu.execute import execute
from pytest_hetgpu.judge import judge_output
from pytest_hetgpu.live import MARKUP, Live, cell_pairs, shown
from pytest_hetgpu.model import Job, Kind, Scenario, Verdict
from pytest_hetgpu.options import Settings
from pytest_hetgpu.reporting.folder import RunFolder
from pytest_hetgpu.reporting.journal import Journal, matrix_file
from pytest_hetgpu.reporting.pairs import to_pairs
from pytest_hetgpu.reporting.report import build
from pytest_hetgpu.runtimes.base import Runtime
from pytest_hetgpu.suite import Suite, packaged

EXIT_NOTHING_RAN = 10


class Session:
    """Everything a run holds; a pytest plugin itself. `folder` and `journal` are None where nothing is to be run."""

    def __init__(self, config: pytest.Config, settings: Settings, suite: Suite) -> None:
        self.config = config
        self.settings = settings
        self.suite = suite
        self.cells = suite.select(settings.cell)
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.live = Live(self.cells, lambda: self.folder.path if self.folder else None)
        self.stop = interruption.OrderlyStop()
        self.folder: RunFolder | None = None
        self.journal: Journal | None = None
        self.runtimes: dict[str, Runtime] = {}
        self.marks: dict[str, pytest.Mark] = {}
        self.started = False

    @classmethod
    def open(cls, config: pytest.Config, settings: Settings) -> Session:
        """Reads the matrices and makes the run's folder. pytest.UsageError (exit 4) for anything that cannot be run."""
        try:
            suite = Suite.load(
                settings.matrix,
                config.rootpath,
                inventory_file=settings.inventory,
                timeout=settings.timeout,
                environ=os.environ,
            )
            session = cls(config, settings, suite)
            session.register_marks()
            if config.args_source is not config.ArgsSource.ARGS:
                config.args[:] = [str(packaged("scenarios"))]
            if not (settings.plan or config.option.collectonly):
                session.open_folder()
        except HetgpuError as error:
            raise pytest.UsageError(str(error)) from None
        config.pluginmanager.register(session.live, "hetgpu-live")
        return session

    def open_folder(self) -> None:
        """The run's folder and this process's journal; a worker joins its controller's run."""
        if self.worker is not None:
            self.folder = RunFolder(Path(self.worker["hetgpu_run"]))
            self.journal = Journal(self.folder.path, self.worker["workerid"])
            return
        self.folder = RunFolder.create(self.config.invocation_params.dir / self.settings.reports)
        self.journal = Journal(self.folder.path, "main")
        matrices = [matrix_file(document.name, Path(document.file)) for document in self.suite.documents.values()]
        self.journal.run(matrices, [str(argument) for argument in self.config.invocation_params.args])

    def register_marks(self) -> None:
        """Makes a mark of every axis value, platform and family; a value named like a mark that exists is an error."""
        taken = {line.split(":")[0].split("(")[0].strip() for line in self.config.getini("markers")}
        names = dict.fromkeys((*registry.names("hardware"), *registry.names("transports"), *registry.names("workloads")))
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
        """`-m` and `-k` know a cell by its axis values, hardware and platforms, family and kind. Marks are shared objects."""
        shared: dict[tuple[str, tuple[str, ...]], tuple[list[pytest.Mark], dict[str, pytest.Mark]]] = {}
        for item in items:
            scenario = cell_of(item)
            if scenario is None:
                continue
            key = (scenario.matrix, scenario.values)
            if key not in shared:
                words = ("hetgpu", *self.suite.documents[scenario.matrix].words_of(scenario.values))
                shared[key] = ([self.marks[word] for word in words], {word: self.marks[word] for word in words})
            marks, keywords = shared[key]
            item.own_markers.extend(marks)
            item.keywords.update(keywords)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["hetgpu_run"] = str(self.folder.path) if self.folder else ""

    def pytest_sessionstart(self) -> None:
        if self.folder is not None:
            self.stop.install()
        if self.worker is None:
            self.config.pluginmanager.register(InFlight(self.config), "hetgpu-in-flight")

    def pytest_keyboard_interrupt(self) -> None:
        if self.folder is not None and self.worker is None:
            interruption.pass_on(self.folder.path)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if not self.settings.plan:
            return None
        scenarios = [scenario for item in session.items if (scenario := cell_of(item))]
        print(*wording.planned(self.suite, scenarios), sep="\n")
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        scenario = cell_of(item)
        if scenario is not None and scenario.excluded:
            self.skip(item, scenario, f"excluded: {scenario.excluded.reason}", scenario.excluded.issue)

    def skip(self, item: pytest.Item, scenario: Scenario, reason: str, issue: str | None = None) -> NoReturn:
        """Records that a cell is not run, and skips the test with the reason."""
        if self.journal:
            self.journal.skipped(scenario, reason, issue=issue, position=self.position(scenario))
        outcome = Outcome(Kind.SKIPPED, Verdict.NOT_RUN, why=reason)
        item.user_properties += to_pairs(outcome, label=scenario.label, matrix=scenario.matrix)
        pytest.skip(f"{reason} ({issue})" if issue else reason)

    def position(self, scenario: Scenario) -> int:
        """The cell's place in the order of the matrices."""
        return self.suite.position(scenario.matrix, scenario.label)

    def provision(self, item: pytest.Item, scenario: Scenario) -> Cluster:
        """The nodes of a cell; a missing node, stack or capability is a skip."""
        try:
            return provision(self.suite.job(scenario), self.runtimes)
        except NotHere as error:
            self.skip(item, scenario, str(error))

    def run(self, item: pytest.Item, cluster: Cluster) -> tuple[RunResult, Outcome]:
        """Executes, judges and records one cell: what judges read is on disk before they do."""
        assert self.folder is not None
        assert self.journal is not None
        job = cluster.job
        self.journal.planned(job, position=self.suite.position(job.matrix, job.label))
        result = execute(cluster, self.folder, self.journal)
        outcome = judge_output(job, result)
        self.journal.judged(job, outcome)
        item.user_properties += to_pairs(outcome, label=job.label, matrix=job.matrix)
        return result, outcome

    def again(self, matrix: str, label: str) -> str:
        """The command that runs just this cell once more."""
        return wording.again(self.suite, matrix, label)

    def describe(self, job: Job, outcome: Outcome) -> str:
        """The text of a failing test."""
        assert self.folder is not None
        return wording.describe(job, outcome, shown(self.folder.log(job.label)), self.again(job.matrix, job.label))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        pairs = cell_pairs(report)
        if pairs is None or terminal is None or self.config.get_verbosity() or report.when == "teardown":
            return
        if not self.started:
            terminal.ensure_newline()
            self.started = True
        self.config.get_terminal_writer().line(self.live.line(pairs), **MARKUP[pairs.verdict])
        # Our lines end themselves; pytest need not print the file's name before each.
        terminal.currentfspath = self.config.rootpath / report.nodeid.split("::")[0]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.worker is None:
            self.live.summary(terminalreporter)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.stop.restore()
        if self.journal:
            self.journal.close()
        if self.worker is None and self.folder is not None:
            build(self.folder.path, self.again)
            if self.live.nothing_ran and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = EXIT_NOTHING_RAN


class InFlight:
    """Gives a cell that was cut short a failing report: pytest's own JUnit would show it as a test without a failure."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.open: dict[str, pytest.TestReport] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup" and report.passed and "hetgpu" in report.keywords:
            self.open[report.nodeid] = report
        elif report.when != "setup":
            self.open.pop(report.nodeid, None)

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
