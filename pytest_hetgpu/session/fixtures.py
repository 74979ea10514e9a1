"""Fixtures for scenario modules: `scenario` (the cell), `cluster` (its nodes), `run` (runs, judges and records it)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_hetgpu.cluster.cluster import Cluster
    from pytest_hetgpu.model.job import Scenario
    from pytest_hetgpu.model.outcome import Outcome
    from pytest_hetgpu.session.session import Session

SESSION_PLUGIN = "hetgpu-session"


def session_of(config: pytest.Config) -> Session | None:
    """The session that a matrix opened, None where there is none."""
    return config.pluginmanager.get_plugin(SESSION_PLUGIN)


@pytest.fixture
def scenario() -> Scenario:
    """One cell of the matrix; a test that asks for it runs once a cell."""
    pytest.skip("needs a matrix: give --hetgpu-matrix FILE")


@pytest.fixture
def cluster(scenario: Scenario, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cell's nodes, ready to run on. One that is not here, or its stack, is a skip; a broken one is an error."""
    session = _session(request)
    yield session.provision(request.node, scenario)
    session.release()


class Run:
    """Runs the cell when called; returns its Outcome, unless that fails the test or is a known failure (xfail).

    A cell whose nodes turn out to lack its program is a skip.
    """

    def __init__(self, session: Session, cluster: Cluster, request: pytest.FixtureRequest) -> None:
        self._session = session
        self._cluster = cluster
        self._request = request

    def __call__(self, *, check: bool = True) -> Outcome:
        """Lease, execute, judge, record. With `check` False a bad outcome is returned like a good one."""
        session = self._session
        result, outcome = session.run(self._request.node, self._cluster)
        if result.interrupted:
            self._request.session.shouldstop = f"stopped by {result.interrupted}"
        if check and outcome.verdict.value == "not_run":
            pytest.skip(_words(outcome.why))
        if check and outcome.verdict.fails:
            from pytest_hetgpu.session.failure_text import describe

            assert session.recorder is not None
            pytest.fail(describe(session.recorder, self._cluster.job, outcome), pytrace=False)
        if check and outcome.verdict.value == "known":
            from pytest_hetgpu.reporting.messages import expected_reason

            pytest.xfail(_words(expected_reason(outcome)))
        return outcome


@pytest.fixture
def run(cluster: Cluster, request: pytest.FixtureRequest) -> Run:
    """Call it to run the cell: `outcome = run()`."""
    return Run(_session(request), cluster, request)


def _words(reason: str) -> str:
    """What stands in a matrix, or in a log, without what a terminal would obey."""
    from pytest_hetgpu.store.text import one_line

    return one_line(reason, 1000)


def _session(request: pytest.FixtureRequest) -> Session:
    session = session_of(request.config)
    if session is None:
        pytest.skip("needs a matrix: give --hetgpu-matrix FILE")
    return session
