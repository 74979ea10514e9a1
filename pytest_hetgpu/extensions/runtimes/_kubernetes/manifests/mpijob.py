"""An MPIJob (kubeflow.org/v2beta1): workers, and a launcher, which the operator always requires.

A node without ranks is the launcher. If there is none, the launcher is a pod that only waits. The operator takes the
GPUs from a launcher, so all nodes with ranks are workers.
"""

from __future__ import annotations

from typing import Any

from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.base import Asked, Group, Manifest, metadata, template
from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.kubeflow import replicas, run_policy
from pytest_hetgpu.model.job import Node

LAUNCHER, WORKER = "launcher", "worker"


def groups(nodes: tuple[Node, ...]) -> tuple[Group, ...]:
    """Return the workers, and the launcher if it is a node."""
    ranked = tuple(node for node in nodes if node.ranks)
    other = tuple(node for node in nodes if not node.ranks)
    return tuple(Group(name, found) for name, found in ((WORKER, ranked), (LAUNCHER, other)) if found)


def render(asked: Asked) -> list[Manifest]:
    """Return the one object."""
    workers = asked.groups[0]
    launcher = asked.groups[1] if len(asked.groups) > 1 else None
    spec: dict[str, Any] = {
        "mpiImplementation": "OpenMPI",
        "mpiReplicaSpecs": {
            "Launcher": replicas(template(asked, launcher) if launcher else _waiting(asked, workers), 1),
            "Worker": replicas(template(asked, workers), len(workers.nodes)),
        },
        "runPolicy": run_policy(asked.pods),
        "slotsPerWorker": workers.nodes[0].ranks,
    }
    return [
        {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": metadata(asked, asked.name, asked.pods),
            "spec": spec,
        }
    ]


def _waiting(asked: Asked, workers: Group) -> Manifest:
    """Return a launcher that is no node: the workers' pod without the parts that only ranks need."""
    pod = template(asked, Group(LAUNCHER, workers.nodes))
    container = pod["spec"]["containers"][0]
    container.pop("resources", None)
    container["securityContext"]["capabilities"].pop("add")
    return pod
