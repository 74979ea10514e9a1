"""Launching a cell again that seems slow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.execution.remeasure import Speeds
from pytest_hetgpu.model.outcome import Outcome, RunResult
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.store.folder import RunFolder
from tests.reporting.report_samples import UNREAD, job, result


def speeds(folder: RunFolder, launches: int) -> Speeds:
    """A cell is slow until it was launched so often."""

    def judged(*_: object, further: list[RunResult]) -> Outcome:
        return replace(UNREAD, unsettled=len(further) < launches)

    suite: Any = None
    return Speeds(suite, folder, "main", lambda scenario: Cluster(job(), ()), judged)


def slow() -> Cluster:
    made = job()
    return Cluster(replace(made, demand=replace(made.demand, limits={MessagePoint(8, "float32"): ()})), ())


def test_it_is_launched_until_that_is_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_hetgpu.execution.remeasure.execute", lambda *_: result())
    assert len(speeds(RunFolder.create(tmp_path), 2).launched_again(slow(), result())) == 2


@pytest.mark.parametrize("error", [NotHere("host 'a' is busy"), ProvisionError("a", "lost")])
def test_what_was_measured_stands_where_its_host_is_gone(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_hetgpu.execution.remeasure.execute", Mock(side_effect=error))
    assert speeds(RunFolder.create(tmp_path), 2).launched_again(slow(), result()) == ()
