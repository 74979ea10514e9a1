"""Cells that were running when the session was stopped, in pytest's own reports."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from queue import Empty
from typing import Any

import pytest
from pluggy import HookimplMarker

from pytest_hetgpu.execution.cell_errors import stopped
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.session import signals
from pytest_hetgpu.session.closed_terminal import OutputStreams
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.properties import to_properties

hookimpl = HookimplMarker("pytest")
_PATIENCE = 5.0  # seconds for reports of workers that are on their way


class InterruptedCells:
    """Hooks that give an interrupted cell a report as skipped. Without one, pytest's own JUnit would show a pass.

    A cell is interrupted while it runs, or before: while its nodes are made ready, or it waits for their hosts.
    """

    def __init__(self, config: Any, streams: OutputStreams, journal: Journal, cells: Iterable[Scenario] = ()) -> None:
        self.config = config
        self.streams = streams
        self.journal = journal
        self.cells = {cell.label: cell for cell in cells}
        #: The tests that have begun and not ended: a report of each, made at its start, then that of its setup.
        self.open: dict[str, pytest.TestReport] = {}
        #: Number of cells that workers were running when an interrupt arrived.
        self.running = 0
        self.signal = ""

    def _cell(self, nodeid: str) -> Scenario | None:
        return self.cells.get(nodeid.rpartition("[")[2].rstrip("]"))

    @hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        if self._cell(nodeid):
            self.open[nodeid] = pytest.TestReport(nodeid, location, {}, "passed", None, "setup")

    @hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> Generator[None, object, object]:
        # A signal in the middle would leave some plugins with the report and some without; it waits until all have it.
        if self.streams.maybe_broken:
            self.streams.detach_broken()
        with signals.deferred():
            if report.when == "setup" and report.passed and "hetgpu" in report.keywords:
                self.open[report.nodeid] = report
            else:
                self.open.pop(report.nodeid, None)
            return (yield)

    @hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        self.signal = excinfo.value.args[0] if isinstance(excinfo.value, signals.Stopped) else ""
        if self.config.pluginmanager.has_plugin("dsession"):
            self.running = len(signals.running(self.journal.folder, self.journal.part))

    def _receive_reports(self) -> None:
        """Pass on the reports that workers of pytest-xdist have sent: an interrupt ends the loop that does it.

        A worker reports the setup of a cell before it runs the cell. So a running cell without a report has one on its
        way.
        """
        session = self.config.pluginmanager.get_plugin("dsession")
        deadline = time.monotonic() + _PATIENCE
        while session is not None:
            left = deadline - time.monotonic() if self.running > len(self.open) else 0.0
            try:
                name, arguments = session.queue.get(timeout=left) if left > 0 else session.queue.get_nowait()
            except Empty:
                return
            if name == "testreport":
                session.worker_testreport(**arguments)

    @hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self.streams.detach_broken()
        self._receive_reports()
        outcome = stopped(self.signal)
        for report in list(self.open.values()):
            cell = self._cell(report.nodeid)
            cut = pytest.TestReport(
                nodeid=report.nodeid,
                location=report.location,
                keywords=report.keywords,
                outcome="skipped",
                longrepr=(*_place(report), f"Skipped: {outcome.why}"),
                when="call",
                user_properties=to_properties(outcome, label=cell.label, matrix=cell.matrix) if cell else (),
            )
            # What xdist adds: JUnit tells the reports of a test apart by the worker they came from.
            vars(cut).update({name: value for name, value in vars(report).items() if name not in vars(cut)})
            self.config.hook.pytest_runtest_logreport(report=cut)


def _place(report: Any) -> tuple[str, int]:
    """Return file and line of a test, as the report of a skip has them."""
    file, line, _ = report.location
    return file, line or 0
