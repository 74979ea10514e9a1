"""The control of a run: its workers, signals, plan and end, as a plugin of pytest."""

from __future__ import annotations

import math
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.reporting import messages
from pytest_hetgpu.session import hooks, signals
from pytest_hetgpu.session.cell_tests import CellTests
from pytest_hetgpu.session.finish import end
from pytest_hetgpu.session.interrupted_cells import InterruptedCells
from pytest_hetgpu.session.marks import cell_of
from pytest_hetgpu.session.settings import FULL, STACK, Settings
from pytest_hetgpu.store.redaction.redact import redact
from pytest_hetgpu.store.text import printable

if TYPE_CHECKING:
    from pytest_hetgpu.execution.context import RunContext


class Session:
    """Hooks of the session, for the `tests` of its cells."""

    def __init__(self, config: pytest.Config, settings: Settings, suite: MatrixSet, tests: CellTests) -> None:
        self.config = config
        self.settings = settings
        self.suite = suite
        self.tests = tests
        self.stop = signals.GracefulShutdown()
        #: The loss of the run's folder, or of a journal, that a worker met.
        self.lost = ""

    @property
    def context(self) -> RunContext | None:
        """The run; None if nothing is run: only collection, or a plan."""
        return self.tests.opened.runner.context if self.tests.opened else None

    @property
    def is_worker(self) -> bool:
        """Whether this process is a worker of pytest-xdist."""
        return hasattr(self.config, "workerinput")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        run = self.context
        node.workerinput["hetgpu_run"] = str(run.folder.path) if run else ""
        node.workerinput["hetgpu_part"] = run.journal.part if run else 0
        node.workerinput["hetgpu_owner"] = run.guard.label if run else ""
        node.workerinput["hetgpu_deadline"] = run.options.budget.deadline if run else math.inf
        sampled = self.settings.strategy != FULL or self.settings.bisect not in ("", STACK)
        node.workerinput["hetgpu_sample"] = [cell.label for cell in self.tests.cells] if sampled else []
        node.workerinput["hetgpu_options"] = list(run.options.typed) if run else []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.lost = self.lost or getattr(node, "workeroutput", {}).get("hetgpu_lost", "")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> object | None:
        """Let hosts decide what starts when, unless the user chose another distribution than xdist's default."""
        run = self.context
        if run is None or config.getoption("dist") != "load":
            return None
        from pytest_hetgpu.session.xdist.factory import scheduler

        return scheduler(self.suite, self.tests.cells, run.options.history, run.health)(config, log)

    def pytest_sessionstart(self) -> None:
        if self.context is not None:
            self.stop.install()
            if not self.is_worker:
                cells = InterruptedCells(self.config, self.stop.streams, self.context.journal, self.tests.cells)
                self.config.pluginmanager.register(cells, "hetgpu-in-flight")

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        self.stop.streams.detach_broken()
        run = self.context
        if run is not None and not self.is_worker:
            signals.forward(run.journal)
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
        for line in messages.plan_lines(self.suite, scenarios, partial(hooks.change_planned, self.config)):
            writer.line(printable(redact(line)))
        return True

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            # Neither an interrupt nor an error at the very end costs the reports.
            try:
                if self.context is not None:
                    live = self.config.pluginmanager.get_plugin("hetgpu-live")
                    session.exitstatus = end(self.context, live, session.exitstatus, self.lost)
                    if self.is_worker:
                        self.config.workeroutput["hetgpu_lost"] = self.context.journal.lost  # type: ignore[attr-defined]
            except KeyboardInterrupt:
                session.exitstatus = pytest.ExitCode.INTERRUPTED
            finally:
                self.stop.restore()
