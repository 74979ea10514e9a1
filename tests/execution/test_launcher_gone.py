"""A launcher that is no longer there after its cell failed: recorded with the result, before anybody judges."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.cluster.cluster import Cluster, ClusterNode
from pytest_hetgpu.execution.execute import execute
from pytest_hetgpu.extensions.runtimes.fake import FakeRuntime
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.folder import RunFolder, read_result
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import job


@pytest.mark.parametrize(("code", "vanishes", "gone"), [(1, True, True), (1, False, False), (0, True, False)])
def test_what_became_of_the_launcher_is_recorded(tmp_path: Path, code: int, vanishes: bool, gone: bool) -> None:
    launcher = tmp_path / "mpirun"
    launcher.touch(0o755)
    made = replace(job("cell"), command=Command((str(launcher),)))

    def answer(_: Command) -> tuple[int, bytes]:
        if vanishes:
            launcher.unlink()
        return code, b"orte: a plugin is gone\n"

    runtime = FakeRuntime(answer)
    folder = RunFolder.create(tmp_path / "reports")
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([], ["pytest"])
        journal.planned(made)
        found = execute(Cluster(made, tuple(ClusterNode(node, runtime) for node in made.nodes)), folder, journal)
    assert found.launcher_gone is gone
    kept = read_result(folder.job(made.label))
    assert kept is not None
    assert kept.launcher_gone is gone
    (cell,) = read_run(folder.path).cells
    assert cell.result is not None
    assert cell.result.launcher_gone is gone
