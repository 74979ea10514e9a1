"""Further runs at the end of the test loop, for the conditions of failures. They change no exit code."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_hetgpu.errors import StorageError, UsageError
from pytest_hetgpu.execution.bisection import AxisBisection, StackBisection
from pytest_hetgpu.execution.controls import Controls, Limit, auto
from pytest_hetgpu.execution.remedies import Remedies
from pytest_hetgpu.execution.shrinking import Shrinking
from pytest_hetgpu.session.settings import AUTO, STACK, Settings
from pytest_hetgpu.store.disk_errors import storage_errors

if TYPE_CHECKING:
    from pytest_hetgpu.execution.runner import CellRunner
    from pytest_hetgpu.session.terminal.results import TerminalReporter


class FurtherRuns:
    """Runs bisection, controls, remedies and shrinking after all cells, in the process that builds the reports."""

    def __init__(self, runner: CellRunner, live: TerminalReporter, settings: Settings) -> None:
        self.runner = runner
        self.live = live
        self.settings = settings
        self.began = time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield
        if not (session.shouldstop or session.shouldfail):
            self._run()
        return result

    def _wanted(self) -> Iterator[Callable[[], object]]:
        asked, axis, tell = self.settings.controls, self.settings.bisect, self.live.announce
        if axis:
            yield (StackBisection(self.runner, tell) if axis == STACK else AxisBisection(self.runner, axis, tell)).run
        if asked:
            limit = auto(time.monotonic() - self.began) if asked == AUTO else Limit(int(asked))
            yield Controls(self.runner, limit, tell).run
        if self.settings.remedies:
            yield Remedies(self.runner, tell).run
        if self.settings.minimise:
            yield Shrinking(self.runner, tell).run

    def _run(self) -> None:
        try:
            with storage_errors(self.runner.context.folder.path):
                for run in self._wanted():
                    run()
        except (StorageError, UsageError) as error:
            self.live.warn(f"further runs: ended: {error}")
