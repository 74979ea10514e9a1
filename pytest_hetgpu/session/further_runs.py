"""Further runs at the end of the test loop, for the conditions of failures. They change no exit code."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Literal

import pytest

from pytest_hetgpu.errors import StorageError, UsageError
from pytest_hetgpu.execution import controls
from pytest_hetgpu.session.settings import AUTO
from pytest_hetgpu.store.disk_errors import storage_errors

if TYPE_CHECKING:
    from pytest_hetgpu.execution.runner import CellRunner
    from pytest_hetgpu.session.terminal.results import TerminalReporter


class FurtherRuns:
    """Runs controls after all cells, in the process that builds the reports."""

    def __init__(self, runner: CellRunner, live: TerminalReporter, most: int | Literal["auto"]) -> None:
        self.runner = runner
        self.live = live
        self.most = most
        self.began = time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield
        if not (session.shouldstop or session.shouldfail):
            self._run()
        return result

    def _run(self) -> None:
        elapsed = time.monotonic() - self.began
        limit = controls.auto(elapsed) if self.most == AUTO else controls.Limit(int(self.most))
        try:
            with storage_errors(self.runner.context.folder.path):
                controls.Controls(self.runner, limit, self.live.announce).run()
        except (StorageError, UsageError) as error:
            self.live.warn(f"controls: ended: {error}")
