"""A PyTorchJob (kubeflow.org/v1): the first node is its master, the others are workers."""

from __future__ import annotations

from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.base import Asked, Group, Manifest, metadata, template
from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.kubeflow import replicas, run_policy
from pytest_hetgpu.model.job import Node

_REPLICAS = {"master": "Master", "worker": "Worker"}


def groups(nodes: tuple[Node, ...]) -> tuple[Group, ...]:
    """Return the master, and the workers if there are any."""
    return tuple(Group(name, found) for name, found in (("master", nodes[:1]), ("worker", nodes[1:])) if found)


def render(asked: Asked) -> list[Manifest]:
    """Return the one object."""
    found = {_REPLICAS[group.name]: replicas(template(asked, group), len(group.nodes)) for group in asked.groups}
    return [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": metadata(asked, asked.name, asked.pods),
            "spec": {"pytorchReplicaSpecs": found, "runPolicy": run_policy(asked.pods)},
        }
    ]
