"""The nodes of a cell, ready to run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.hardware.base import Platform
from pytest_hetgpu.model import Job, Node
from pytest_hetgpu.registry import find
from pytest_hetgpu.runtimes.base import Runtime


@dataclass(frozen=True)
class ClusterNode:
    """One node with the runtime that reaches it."""

    node: Node
    runtime: Runtime

    @property
    def host(self) -> Any:
        """The node as a testinfra host (needs `pytest-testinfra`)."""
        return self.runtime.host()


@dataclass(frozen=True)
class Cluster:
    """The nodes of one job. `control` is a node without ranks that starts it; None: the first node does."""

    job: Job
    nodes: tuple[ClusterNode, ...]
    control: ClusterNode | None = None

    @property
    def launcher(self) -> Runtime:
        """Where the job's command is started."""
        return (self.control or self.nodes[0]).runtime


def provision(job: Job, runtimes: Mapping[str, Runtime] | None = None) -> Cluster:
    """Nodes that were checked to have the accelerator they are said to have; NotHere names what is missing."""
    ready = dict(runtimes or {})
    nodes = tuple(_provision(node, ready) for node in job.nodes)
    return Cluster(job, nodes, _provision(job.launcher, ready) if job.launcher else None)


def _provision(node: Node, ready: dict[str, Runtime]) -> ClusterNode:
    name = node.hardware.runtime
    runtime = ready.setdefault(name, find("runtimes", name, Runtime)())  # type: ignore[type-abstract]
    platform = find("hardware", node.hardware.accelerator.platform, Platform)
    missing = runtime.absent(platform.devices)
    if missing:
        wanted = f"platform={node.hardware.accelerator.platform} arch={node.hardware.accelerator.arch or 'any'}"
        raise NotHere(
            f"node {node.index} ({node.hardware.name} on {node.host}) needs {wanted}, without {', '.join(missing)} "
            f"({platform.hint}); give --hetgpu-inventory where such a host is elsewhere"
        )
    return ClusterNode(node, runtime)
