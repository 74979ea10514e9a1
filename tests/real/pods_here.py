"""Whole runs on pods: a cluster, the image that is on its node, and how a matrix is run on both."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.extensions import build_context
from pytest_hetgpu.extensions.runtimes._docker import images as _images
from pytest_hetgpu.extensions.runtimes._docker.engine import engine_of
from pytest_hetgpu.model.job import ConnectionInfo, Image
from tests.kubernetes.cluster import NAMESPACE, Cluster
from tests.real.nodes_here import ROOT

HEAD = """\
name: nodes
hardware:
  one: {runtime: kubernetes, image: %s, mca: {mpi_yield_when_idle: 1}, kubernetes: {ready: 60, ttl: 600}}
  other: {runtime: kubernetes, image: %s, mca: {mpi_yield_when_idle: 1}, kubernetes: {ready: 60, ttl: 600}}
axes:
  placement: {pair: %s}
  transport: {ob1: {}}
  workload: {%s}
"""
ALLREDUCE = "allreduce: {sizes: 8, iterations: 2}"
HANG = "fault: {fault: hang, timeout: 100}"
OPTIONS = ("-p", "no:cacheprovider", "--hetgpu-wire", "off", "--hetgpu-matrix", "nodes.yaml")
INVENTORY = ("--hetgpu-inventory", "hosts.yaml")


def image() -> str:
    """The image cpu-ompi5, built on this machine's engine if need be: the node takes it from there."""
    folder, args = str(ROOT / "containers" / "cpu-ompi5"), {"BASE": "hetgpu-base:bookworm"}
    made = Image(build_context.reference(folder, args), folder, args, "host")
    _images.ensure(engine_of("tests", ConnectionInfo()), made, "tests")
    return made.reference


class Pods:
    """A cluster, and runs on it in the folder of a test."""

    def __init__(self, cluster: Cluster, image: str, pytester: pytest.Pytester) -> None:
        self.cluster = cluster
        self._image, self._pytester = image, pytester

    @property
    def reports(self) -> Path:
        """The folder of the newest run."""
        return self._pytester.path / "reports" / "latest"

    def log(self) -> str:
        """The output of the only cell."""
        (found,) = self.reports.glob("scenarios/*/output.log")
        return found.read_text()

    def write(self, nodes: str, workload: str, site: str = "{}", image: str = "") -> None:
        """The matrix, and what the site's inventory says of all pods."""
        taken = image or self._image
        self._pytester.path.joinpath("nodes.yaml").write_text(HEAD % (taken, taken, nodes, workload))
        self._pytester.path.joinpath("hosts.yaml").write_text(f'kubernetes: {{"*": {site}}}\n')

    def run(
        self, nodes: str = "[one, one]", workload: str = ALLREDUCE, site: str = "{}", *options: str
    ) -> pytest.RunResult:
        """A whole run."""
        self.write(nodes, workload, site)
        return self._pytester.runpytest_subprocess(*OPTIONS, *INVENTORY, *options, timeout=200)

    @contextmanager
    def fixed_size(self) -> Iterator[None]:
        """A cluster whose autoscaler says of each pod that it adds no node for it."""
        over = threading.Event()

        def speak() -> None:
            told: set[str] = set()
            while not over.wait(0.5):
                for name in set(self.cluster.pods()) - told:
                    self.cluster.apply(_adds_no_node(name))
                    told.add(name)

        thread = threading.Thread(target=speak)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextmanager
    def hanging(self, site: str = "{}", workload: str = HANG, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """A run whose first cell hangs, once its ranks are there."""
        self.write("[one, one]", workload, site)
        with subprocess.Popen(
            (sys.executable, "-m", "pytest", *OPTIONS, *INVENTORY, *options), cwd=self._pytester.path
        ) as process:
            try:
                self.cluster.until(self._speaks, 60, "ranks that are there")
                yield process
            finally:
                process.kill()

    def _speaks(self) -> bool:
        logs = self._pytester.path.glob("reports/.private/*/*.log")
        return any(b'"t":"hello","rank":1' in log.read_bytes() for log in logs)


def _adds_no_node(pod: str) -> dict[str, Any]:
    """The event by which the Cluster Autoscaler says so."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod}.autoscaler", "namespace": NAMESPACE},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": NAMESPACE},
        "reason": "NotTriggerScaleUp",
        "message": "pod didn't trigger scale-up: 1 node(s) didn't match Pod's node affinity/selector",
        "type": "Normal",
        "source": {"component": "cluster-autoscaler"},
    }


Happens = Callable[[Pods], None]
