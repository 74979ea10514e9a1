"""The link bandwidth is stored with each cell's result, so that its log can be judged again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.judge import judge
from pytest_hetgpu.cluster.cluster import Cluster, ClusterNode
from pytest_hetgpu.execution.execute import execute
from pytest_hetgpu.extensions.runtimes.fake import FakeRuntime
from pytest_hetgpu.model.outcome import LinkBandwidth, RunResult
from pytest_hetgpu.store.folder import RunFolder, read_result
from tests.analysis.judges.judge_cases import evidence, job

LINK = LinkBandwidth(1.75, "pump 1, 4 streams", ("node1", "node0"), 36.5, ("over loopback",))


@pytest.mark.parametrize("link", [LINK, LinkBandwidth(why="node0 to node1: timed out"), None])
def test_from_the_cluster_to_the_result_its_file_and_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: LinkBandwidth | None
) -> None:
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path / "leases"))
    folder = RunFolder.create(tmp_path / "reports")
    made = job()
    runtime = FakeRuntime(lambda _: (0, b""))
    cluster = Cluster(made, tuple(ClusterNode(node, runtime) for node in made.nodes), link=link)
    with pytest.warns(DeprecationWarning, match=r"^Cluster\.wire is link now$"):
        assert cluster.wire == link
    result = execute(cluster, folder, None)
    assert result.wire == link
    kept = read_result(folder.job(made.label))
    assert kept
    assert kept.wire == link
    assert judge(made, kept, evidence()).wire == link


def test_a_result_of_before_has_none(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "reports")
    made = job()
    folder.write_job(made, RunResult(("mpirun",), 0, "output.log", 0.0, 1.0))
    path = folder.job(made.label)
    path.write_text(path.read_text().replace(', "wire": null', ""))
    assert "wire" not in path.read_text()
    kept = read_result(path)
    assert kept
    assert kept.wire is None
    assert replace(kept, wire=LINK).wire == LINK
