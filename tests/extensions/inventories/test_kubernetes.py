"""Nodes of Kubernetes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_hetgpu.extensions.inventories.base import MalformedInventory
from pytest_hetgpu.extensions.inventories.kubernetes import KubernetesSource

READY = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}]


def node(name: str = "n1", gpus: dict[str, str] | None = None, **labels: str) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {key.replace("__", "/").replace("_", "."): text for key, text in labels.items()},
        },
        "spec": {},
        "status": {
            "allocatable": {"cpu": "8", "memory": "1Ki", **(gpus or {})},
            "conditions": READY,
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }


def read(*nodes: dict[str, Any]) -> list[tuple[str, str, str, int | None, tuple[str, ...]]]:
    listing = KubernetesSource.read(json.dumps({"kind": "List", "items": list(nodes)}))
    return [(one.address, one.platform, one.arch, one.gpus, one.groups) for one in listing.hosts]


def left(*nodes: dict[str, Any]) -> list[str]:
    return [one.why for one in KubernetesSource.read(json.dumps({"items": list(nodes)})).skipped]


NVIDIA, AMD = {"nvidia.com/gpu": "4"}, {"amd.com/gpu": "8"}


def with_labels(gpus: dict[str, str], labels: dict[str, str]) -> dict[str, Any]:
    made = node(gpus=gpus)
    made["metadata"]["labels"] = labels
    return made


@pytest.mark.parametrize(
    ("gpus", "labels", "platform", "arch"),
    [
        (NVIDIA, {"nvidia.com/gpu.compute.major": "7", "nvidia.com/gpu.compute.minor": "5"}, "cuda", "sm_75"),
        (NVIDIA, {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}, "cuda", "sm_80"),
        (NVIDIA, {"nvidia.com/gpu.product": "Tesla-T4-SHARED"}, "cuda", "sm_75"),
        (NVIDIA, {}, "cuda", ""),
        (AMD, {"amd.com/gpu.device-id": "7362"}, "rocm", "gfx1011"),
        (AMD, {"beta.amd.com/gpu.device-id": "740c"}, "rocm", "gfx90a"),
        (AMD, {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, "rocm", "gfx942"),
        (AMD, {"amd.com/gpu.device-id": "ffff"}, "rocm", ""),
        ({}, {}, "", ""),
        ({"nvidia.com/gpu": "0"}, {}, "", ""),
    ],
)
def test_platform_and_arch(gpus: dict[str, str], labels: dict[str, str], platform: str, arch: str) -> None:
    count = 4 if gpus is NVIDIA else 8 if gpus is AMD else 0
    assert read(with_labels(gpus, labels)) == [("10.0.0.1", platform, arch, count, ())]


def test_groups_are_ours_and_those_of_clouds() -> None:
    made = with_labels({}, {"hetgpu/hardware": "g4dn", "node.kubernetes.io/instance-type": "g4dn.xlarge", "other": "x"})
    (found,) = KubernetesSource.read(json.dumps({"items": [made]})).hosts
    assert (found.hardware, found.groups) == (("g4dn",), ("g4dn.xlarge",))


def test_one_node_alone_and_one_without_addresses() -> None:
    made = node()
    del made["status"]["addresses"]
    assert [one.address for one in KubernetesSource.read(json.dumps(made)).hosts] == ["n1"]


def test_what_takes_no_pods_is_left_out() -> None:
    away = node()
    away["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    cordoned = node()
    cordoned["spec"]["unschedulable"] = True
    idle = with_labels({"nvidia.com/gpu": "0"}, {"nvidia.com/gpu.present": "true"})
    assert left(away, cordoned, idle, node(gpus={**NVIDIA, **AMD})) == [
        "is not ready (NodeStatusUnknown)",
        "takes no pods (it is cordoned)",
        "has a GPU by its labels, but offers none: allocatable has no nvidia.com/gpu",
        "has GPUs of both NVIDIA and AMD: a host is of one kind",
    ]


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("[]", 1, "is no list of nodes: give what `kubectl get nodes -o json` prints"),
        ('{"items":\n[7]}', 2, "items[0] must be a map, not 7"),
        ('{"items": [\n{"metadata":\n{}}]}', 3, "items[0].metadata.name must be a node's name, not nothing"),
        (
            '{"items": [{"metadata": {"name": "a"},\n"status": []}]}',
            2,
            "items[0].status must be a map, not an empty list",
        ),
    ],
)
def test_what_is_wrong(text: str, line: int, told: str) -> None:
    with pytest.raises(MalformedInventory) as caught:
        KubernetesSource.read(text)
    assert (str(caught.value), caught.value.line) == (told, line)
