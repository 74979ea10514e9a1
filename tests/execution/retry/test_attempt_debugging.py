"""A debug rerun adds to what is known, and takes nothing away."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.execution.execute import BOUNDS
from pytest_hetgpu.execution.retry.debugging import debugged
from pytest_hetgpu.store.folder import RunFolder
from tests.reporting.report_samples import CRASHED, job


@pytest.mark.parametrize("error", [NotHere("host 'a' is busy"), ProvisionError("a", "lost")])
def test_a_host_that_is_taken_meanwhile_leaves_the_verdict_as_it_is(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_hetgpu.execution.retry.debugging.execute", Mock(side_effect=error))
    folder = RunFolder.create(tmp_path)
    assert debugged(job(), folder, lambda: Cluster(job(), ()), lambda *_: CRASHED, BOUNDS) is None
