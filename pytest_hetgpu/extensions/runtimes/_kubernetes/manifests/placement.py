"""The objects of a placement, and the pod of each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_hetgpu.extensions.runtimes._kubernetes.manifests import job, mpijob, pytorchjob, volcano
from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.base import (
    GROUP,
    NAME,
    Asked,
    Group,
    Manifest,
    groups_by_kind,
    pods_of,
)
from pytest_hetgpu.model.job import Node

_RENDER = {"job": job.render, "mpijob": mpijob.render, "pytorchjob": pytorchjob.render, "volcano": volcano.render}


@dataclass(frozen=True, slots=True)
class PodPosition:
    """The pod of a node: the one at `position` of those with the label `GROUP: group`, in the order of `rank_of`."""

    group: str
    position: int


def manifests(nodes: Sequence[Node], name: str, marks: Mapping[str, str]) -> list[Manifest]:
    """Return the objects for the nodes of runtime kubernetes of one placement; the main object is the first.

    `name` is from `pods.object_name`. `marks` (`hetgpu.run`, `hetgpu.owner`, ...) become labels of all objects and pods
    as far as labels can hold them, and annotations in full. The objects after the main one must be `owned` by it.
    """
    return _RENDER[pods_of(nodes[0]).kind](Asked(name, marks, groups(nodes)))


def groups(nodes: Sequence[Node]) -> tuple[Group, ...]:
    """Group the nodes by the template of their pods."""
    kind = pods_of(nodes[0]).kind
    if kind == "mpijob":
        return mpijob.groups(tuple(nodes))
    return pytorchjob.groups(tuple(nodes)) if kind == "pytorchjob" else groups_by_kind(nodes)


def places(nodes: Sequence[Node]) -> tuple[PodPosition, ...]:
    """Return the pod of each node, in the order of the nodes."""
    found = {node.index: PodPosition(one.name, at) for one in groups(nodes) for at, node in enumerate(one.nodes)}
    return tuple(found[node.index] for node in nodes)


def selector(name: str, group: str | None = None) -> str:
    """Return the label selector (`kubectl -l`) of all pods of a placement, or of one group."""
    return f"{NAME}={name}" + ("" if group is None else f",{GROUP}={group}")


def rank_of(pod: Mapping[str, Any]) -> tuple[int, str]:
    """Return the sort key of a pod in its group: its number if its controller gives one, else its name."""
    meta = pod.get("metadata", {})
    told = {**meta.get("annotations", {}), **meta.get("labels", {})}
    keys = ("batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index", "volcano.sh/task-index")
    number = next((told[key] for key in keys if str(told.get(key, "")).isdecimal()), "0")
    return int(number), str(meta.get("name", ""))


def owned(manifest: Manifest, main: Mapping[str, Any]) -> Manifest:
    """Return a manifest that is removed with the main object; `main` is from the API server, with its uid."""
    owner = {
        "apiVersion": main["apiVersion"],
        "kind": main["kind"],
        "name": main["metadata"]["name"],
        "uid": main["metadata"]["uid"],
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}
