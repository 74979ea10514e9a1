"""Hooks that this plugin calls. A conftest.py that pytest loads at its start, or a plugin, implements them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_hetgpu.model.job import Job, Scenario
    from pytest_hetgpu.model.outcome import Outcome


def pytest_hetgpu_scenarios(config: pytest.Config, scenarios: list[Scenario]) -> None:
    """Remove or reorder cells in place, before tests are parametrised with them.

    `--hetgpu-cell` was applied already. Each process of a run calls it, and must get the same result.
    """


@pytest.hookspec(firstresult=True)
def pytest_hetgpu_job(config: pytest.Config, scenario: Scenario, job: Job) -> Job | None:
    """Return a job to start instead of `job`, or None to leave it.

    The job may differ in command, timeout and demand. It is called for each launch of a cell, and for each cell of a
    plan. `pytest.skip(REASON)` in it records the cell as not run.
    """


def pytest_hetgpu_outcome(config: pytest.Config, scenario: Scenario, outcome: Outcome) -> None:
    """Take the outcome of a cell, which is judged and in the journal; called in the process that ran the cell.

    It is called again if the test then fails by itself. An exception becomes a warning.
    """


def pytest_hetgpu_report(config: pytest.Config, run: Path) -> str | Iterable[str] | None:
    """Return lines for the terminal's summary; called once, after the reports in the folder `run` were written.

    An exception becomes a line of the summary.
    """
