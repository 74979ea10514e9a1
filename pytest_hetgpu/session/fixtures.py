"""Fixtures for scenario modules: `scenario` (the cell), `cluster` (its nodes), `run` (runs, judges and records it)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_hetgpu.cluster.cluster import Cluster
    from pytest_hetgpu.model.job import Scenario
    from pytest_hetgpu.model.outcome import Outcome
    from pytest_hetgpu.session.cell_tests import CellTests

CELLS_PLUGIN = "hetgpu-cells"


def cell_tests_of(config: pytest.Config) -> CellTests | None:
    """Return the tests of the cells; None without a matrix."""
    return config.pluginmanager.get_plugin(CELLS_PLUGIN)


@pytest.fixture
def scenario() -> Scenario:
    """One cell of the matrix. A test that requests it runs once per cell."""
    pytest.skip("needs a matrix: give --hetgpu-matrix FILE")


@pytest.fixture
def cluster(scenario: Scenario, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Provide the nodes of the cell, ready to run on. A missing node or stack is a skip, a broken node an error."""
    tests = _cell_tests(request)
    yield tests.provision(request.node, scenario)
    tests.release()


class Run:
    """The run of the cell. A call returns its Outcome, unless it fails the test or is a known failure (xfail).

    If the nodes lack the program of the cell, the test is skipped.
    """

    def __init__(self, tests: CellTests, cluster: Cluster, request: pytest.FixtureRequest) -> None:
        self._tests = tests
        self._cluster = cluster
        self._request = request

    def __call__(self, *, check: bool = True) -> Outcome:
        """Launch, judge and record the cell. With `check` False, a bad outcome is returned like a good one."""
        result, outcome = self._tests.run(self._request.node, self._cluster)
        if result.interrupted:
            self._request.session.shouldstop = f"stopped by {result.interrupted}"
        if check and outcome.verdict.value == "not_run":
            pytest.skip(_words(outcome.why))
        if check and outcome.verdict.fails:
            from pytest_hetgpu.session.failure_text import describe

            pytest.fail(describe(self._tests.runner.context, self._cluster.job, outcome), pytrace=False)
        if check and outcome.verdict.value == "known":
            from pytest_hetgpu.reporting.messages import expected_reason

            pytest.xfail(_words(expected_reason(outcome)))
        return outcome


@pytest.fixture
def run(cluster: Cluster, request: pytest.FixtureRequest) -> Run:
    """Call it to run the cell: `outcome = run()`."""
    return Run(_cell_tests(request), cluster, request)


def _words(reason: str) -> str:
    """Return text of a matrix or log in one line, without control characters."""
    from pytest_hetgpu.store.text import one_line

    return one_line(reason, 1000)


def _cell_tests(request: pytest.FixtureRequest) -> CellTests:
    tests = cell_tests_of(request.config)
    if tests is None:
        pytest.skip("needs a matrix: give --hetgpu-matrix FILE")
    return tests
