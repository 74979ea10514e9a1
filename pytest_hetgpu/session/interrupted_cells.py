"""Cells that were running when the session was stopped, in pytest's own reports."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pluggy import HookimplMarker

from pytest_hetgpu.session import signals
from pytest_hetgpu.session.closed_terminal import OutputStreams

hookimpl = HookimplMarker("pytest")


class InterruptedCells:
    """Hooks that give an interrupted cell a failing report. Without one, pytest's own JUnit would show a pass."""

    def __init__(self, config: Any, streams: OutputStreams) -> None:
        self.config = config
        self.streams = streams
        self.open: dict[str, Any] = {}

    @hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> Generator[None, object, object]:
        # A signal in the middle would leave some plugins with the report and some without; it waits until all have it.
        if self.streams.maybe_broken:
            self.streams.detach_broken()
        with signals.deferred():
            if report.when == "setup" and report.passed and "hetgpu" in report.keywords:
                self.open[report.nodeid] = report
            elif report.when != "setup":
                self.open.pop(report.nodeid, None)
            return (yield)

    @hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self.streams.detach_broken()
        for report in list(self.open.values()):
            cut = type(report)(
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
