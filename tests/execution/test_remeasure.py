"""Launching a cell again that seems slow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.execution import context
from pytest_hetgpu.execution.remeasure import repeat_until_conclusive
from pytest_hetgpu.model.outcome import Outcome, RunResult
from pytest_hetgpu.model.records import MessagePoint
from tests.execution.contexts import run_context
from tests.reporting.report_samples import UNREAD, job, result


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[context.RunContext]:
    """A run in which a cell seems slow until it was launched three times."""

    def judged(_job: object, _result: object, _known: object, further: list[RunResult], _own: object) -> Outcome:
        return replace(UNREAD, inconclusive=len(further) < 2)

    monkeypatch.setattr(context, "judge_output", judged)
    with closing(run_context(tmp_path)) as found:
        yield found


def slow() -> Cluster:
    made = job()
    return Cluster(replace(made, demand=replace(made.demand, limits={MessagePoint(8, "float32"): ()})), ())


def test_it_is_launched_until_that_is_settled(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_hetgpu.execution.remeasure.execute", lambda *_: result())
    assert len(repeat_until_conclusive(run, slow(), result())) == 2


@pytest.mark.parametrize("error", [NotHere("host 'a' is busy"), ProvisionError("a", "lost")])
def test_what_was_measured_stands_where_its_host_is_gone(
    error: Exception, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_hetgpu.execution.remeasure.execute", Mock(side_effect=error))
    assert repeat_until_conclusive(run, slow(), result()) == ()
