"""A debug rerun adds to what is known, and takes nothing away."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.execution.retry.debug_rerun import rerun_with_debug_output
from tests.execution.contexts import run_context
from tests.reporting.report_samples import job


@pytest.mark.parametrize("error", [NotHere("host 'a' is busy"), ProvisionError("a", "lost")])
def test_a_host_that_is_taken_meanwhile_leaves_the_verdict_as_it_is(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_hetgpu.execution.retry.debug_rerun.execute", Mock(side_effect=error))
    with closing(run_context(tmp_path)) as run:
        assert rerun_with_debug_output(run, job(), lambda: Cluster(job(), ())) is None
