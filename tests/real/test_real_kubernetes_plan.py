"""The lines of a plan, typed at a real Kubernetes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_hetgpu.extensions.package_data import PACKAGE
from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.reporting.upstream.script import script
from tests.kubernetes import cluster as kubernetes
from tests.real.pods_here import ALLREDUCE, HEAD, image

pytestmark = pytest.mark.real

Lacking = Callable[[str, str], None]
# A server before 1.22 has no Indexed Jobs, and the check of its own client says so.
OLD = '#!/bin/sh\nfor word do [ "$word" != create ] || exec "$HETGPU_KUBECTL" "$@" --validate=false; done\n'


@pytest.fixture(scope="module")
def cluster(lacking: Lacking) -> Iterator[kubernetes.Cluster]:
    if lack := kubernetes.lacks():
        lacking("kubernetes", lack)
    with kubernetes.running() as made:
        yield made


@pytest.mark.parametrize("nodes", ["[one, one]", "[one, other]"])
def test_what_is_printed_makes_pods_runs_the_cell_in_them_and_removes_them(
    cluster: kubernetes.Cluster, engine: None, tmp_path: Path, nodes: str
) -> None:
    taken = image()
    tmp_path.joinpath("nodes.yaml").write_text(HEAD % (taken, taken, nodes, ALLREDUCE))
    suite = MatrixSet.load([tmp_path / "nodes.yaml"], tmp_path, timeout=100, environ={})
    (scenario,) = suite.scenarios
    tmp_path.joinpath("reproduce.sh").write_text(script(suite.job(scenario), "key"))
    shutil.copytree(PACKAGE / "remote", tmp_path / "programs")
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(f'{OLD}exec "$HETGPU_KUBECTL" "$@"\n')
    program.chmod(0o700)
    env = {
        **os.environ,
        "PATH": f"{program.parent}:{kubernetes.path()}",
        "HETGPU_KUBECTL": str(shutil.which("kubectl", path=kubernetes.path())),
        "KUBECONFIG": str(cluster.config),
    }
    done = subprocess.run(
        ["sh", "reproduce.sh"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count('"t":"done"') == 2
    assert cluster.get("pods,jobs,services", "-n", kubernetes.NAMESPACE, "-l", "hetgpu.name") == []
