"""A container engine, and a Kubernetes, that whole runs can use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kubernetes import cluster as kubernetes
from tests.real.nodes_here import BUILD, HEAD, HOSTS, left
from tests.real.pods_here import Pods, image

Nodes = Callable[..., pytest.RunResult]
Lacking = Callable[[str, str], None]


@pytest.fixture
def nodes(
    engine: None, pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Nodes:
    """Runs a matrix over the images here; nothing of the run may be left on the engine."""
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path_factory.mktemp("leases")))
    pytester.path.joinpath("hosts.yaml").write_text(HOSTS + BUILD)

    def run(axes: str, *arguments: str, head: str = HEAD) -> pytest.RunResult:
        pytester.path.joinpath("nodes.yaml").write_text(head + axes)
        options = ("--hetgpu-matrix", "nodes.yaml", *arguments)
        if "--hetgpu-inventory" not in arguments:
            options += ("--hetgpu-inventory", "hosts.yaml")
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *options, timeout=400)
        run_folder = Path(pytester.path / "reports" / "latest").resolve()
        assert left(run_folder.name) == []
        return result

    return run


@pytest.fixture(scope="module")
def kubernetes_cluster() -> Iterator[kubernetes.Cluster]:
    with kubernetes.running() as made:
        yield made
        made.until(lambda: made.left(going=True) == [], 180, what="nothing of a run in the cluster")


@pytest.fixture
def pods(
    lacking: Lacking,
    engine: None,
    request: pytest.FixtureRequest,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pods]:
    """Runs on a Kubernetes of one's own, with the rights that the documents ask for; nothing may be left on it."""
    if lack := kubernetes.lacks():
        lacking("kubernetes", lack)
    cluster: kubernetes.Cluster = request.getfixturevalue("kubernetes_cluster")
    monkeypatch.setenv("KUBECONFIG", str(cluster.user))
    monkeypatch.setenv("PATH", kubernetes.path())
    for name in ("HETGPU_LEASES", "HETGPU_LEDGERS"):
        monkeypatch.setenv(name, str(tmp_path_factory.mktemp(name.lower(), numbered=True)))
    yield Pods(cluster, image(), pytester)
    cluster.until(lambda: cluster.left() == [], what="nothing of a run in the cluster")
