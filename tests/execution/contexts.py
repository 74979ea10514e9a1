"""Runs without a session, for tests of their steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_hetgpu.cluster.cleanup.tracker import track_resources
from pytest_hetgpu.execution.context import RunContext
from pytest_hetgpu.execution.options import DEFAULTS, RunOptions
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal


class Suite:
    """The part of a suite that steps ask; its jobs are given by label."""

    knowledge_files = ()
    signature_files = ()

    def __init__(self, scenario: Any = None, job: Any = None) -> None:
        self._scenario = scenario
        self._job = job

    def scenario(self, _: object) -> Any:
        """Return the one scenario."""
        return self._scenario

    def job(self, *_: object, **__: object) -> Any:
        """Return the one job."""
        return self._job

    def position(self, *_: object) -> int:
        """Return the place of the one scenario."""
        return 0


def run_context(reports: Path, options: RunOptions = DEFAULTS, suite: Any = None) -> RunContext:
    """Return a new run in a folder of reports. The caller closes it."""
    folder = RunFolder.create(reports)
    journal = Journal(folder.path, "main")
    found: Any = suite or Suite()
    return RunContext(found, folder, journal, track_resources(folder.path.name), options)
