"""Nodes of Kubernetes (`kubectl get nodes -o json`) by the labels and resources of their GPUs.

Labels: NVIDIA's GPU feature discovery (https://github.com/NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery), AMD's
node labeller (https://github.com/ROCm/k8s-device-plugin, cmd/k8s-node-labeller).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_hetgpu.extensions.inventories._gpus import DEVICES, identify
from pytest_hetgpu.extensions.inventories._json import JsonText, Path
from pytest_hetgpu.extensions.inventories.base import (
    MOST_HOSTS,
    HostListing,
    InventorySource,
    ListedHost,
    MalformedInventory,
    SkippedEntry,
    number,
)
from pytest_hetgpu.extensions.runtimes.pods.request import GPUS

_MARKS = {"cuda": ("nvidia.com/gpu.present", "nvidia.com/gpu.product"), "rocm": ("amd.com/gpu.device-id",)}
_AMD = ("amd.com/gpu.", "beta.amd.com/gpu.")
_OURS = "hetgpu/hardware"
# Labels for kinds of nodes: pools of EKS, GKE, AKS and RunAI, and types of machines.
_GROUPS = (
    *("eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool", "agentpool"),
    *("kubernetes.azure.com/agentpool", "node.kubernetes.io/instance-type", "run.ai/node-pool", "run.ai/type"),
)


class KubernetesSource(InventorySource):
    """The nodes that are ready and accept pods. The label `hetgpu/hardware` names a node's hardware in the matrix.

    The platform is that of the allocatable GPUs. The instruction set comes from NVIDIA's compute capability, else the
    product, and from AMD's device id, else the product.
    """

    title = "nodes of Kubernetes"
    commands = (("kubectl", "get", "nodes", "-o", "json", "--request-timeout=15s"),)

    @classmethod
    def read(cls, text: str) -> HostListing:
        document = JsonText(text)
        root = document.root
        if not isinstance(root, dict) or not ("items" in root or root.get("kind") == "Node"):
            raise MalformedInventory(1, "is no list of nodes: give what `kubectl get nodes -o json` prints")
        single = "items" not in root
        items = [root] if single else document.take(root["items"], list, ("items",), "a list")
        if len(items) > MOST_HOSTS:
            raise MalformedInventory(None, f"names more than {MOST_HOSTS:,} nodes")
        found: list[ListedHost] = []
        skipped: list[SkippedEntry] = []
        for index, item in enumerate(items):
            path: Path = () if single else ("items", index)
            one = _judged(_Item(document, document.take(item, dict, path, "a map"), path))
            if isinstance(one, ListedHost):
                found.append(one)
            elif one:
                skipped.append(one)
        return HostListing(tuple(found), tuple(skipped))


class _Item:
    """One node with its position."""

    def __init__(self, document: JsonText, item: Mapping[str, Any], path: Path) -> None:
        self._document, self._item, self.path = document, item, path

    def at(self, *keys: str) -> dict[str, Any]:
        """Return the map below these keys, empty without one. Raises MalformedInventory for another type."""
        value: Any = self._item
        for place, key in enumerate(keys, 1):
            value = value.get(key)
            if value is None:
                return {}
            self._document.take(value, dict, (*self.path, *keys[:place]), "a map")
        found: dict[str, Any] = value
        return found

    def maps(self, *keys: str) -> list[dict[str, Any]]:
        """Return the maps in the list below these keys."""
        value = self.at(*keys[:-1]).get(keys[-1]) or []
        self._document.take(value, list, (*self.path, *keys), "a list")
        return [one for one in value if isinstance(one, dict)]

    def name(self) -> str:
        """Return its name; a node must have one."""
        path = (*self.path, "metadata", "name")
        name: str = self._document.take(self.at("metadata").get("name"), str, path, "a node's name")
        return name

    def line(self) -> int | None:
        """Return its line."""
        return self._document.where(self.path)


def _judged(item: _Item) -> ListedHost | SkippedEntry | None:
    name = item.name()
    line = item.line()
    if why := _unusable(item):
        return SkippedEntry(name, why, line)
    labels = {key: value for key, value in item.at("metadata", "labels").items() if isinstance(value, str)}
    allocatable = item.at("status", "allocatable")
    counts = {platform: _count(allocatable.get(resource)) for platform, resource in GPUS.items()}
    there = [platform for platform, count in counts.items() if count]
    if len(there) > 1:
        return SkippedEntry(name, "has GPUs of both NVIDIA and AMD: a host is of one kind", line)
    if not there:
        for platform, marks in _MARKS.items():
            if any(labels.get(mark, "false") not in ("", "false") for mark in marks):
                resource = GPUS[platform]
                return SkippedEntry(
                    name, f"has a GPU by its labels, but offers none: allocatable has no {resource}", line
                )
    platform = there[0] if there else ""
    return ListedHost(
        address=_address(item) or name,
        name=name,
        line=line,
        hardware=tuple(filter(None, [labels.get(_OURS)])),
        groups=tuple(dict.fromkeys(labels[key] for key in _GROUPS if labels.get(key))),
        platform=platform,
        arch=_arch(platform, labels),
        gpus=counts.get(platform, 0),
    )


def _unusable(item: _Item) -> str:
    ready = next((one for one in item.maps("status", "conditions") if one.get("type") == "Ready"), {})
    if ready.get("status") != "True":
        reason = ready.get("reason")
        return f"is not ready{f' ({reason[:80]})' if isinstance(reason, str) else ''}"
    if item.at("spec").get("unschedulable") is True:
        return "takes no pods (it is cordoned)"
    return ""


def _count(value: Any) -> int:
    return (number(value) or 0) if isinstance(value, str) else value if isinstance(value, int) else 0


def _address(item: _Item) -> str:
    """Return the first internal address, which the other nodes can reach."""
    found = {
        one.get("type"): one.get("address")
        for one in reversed(item.maps("status", "addresses"))
        if isinstance(one.get("type"), str)
    }
    address = found.get("InternalIP") or found.get("Hostname")
    return address if isinstance(address, str) else ""


def _arch(platform: str, labels: Mapping[str, str]) -> str:
    if platform == "cuda":
        major, minor = (labels.get(f"nvidia.com/gpu.compute.{part}", "") for part in ("major", "minor"))
        if number(major) is not None and number(minor) is not None:
            return f"sm_{major}{minor}"
        return identify(labels.get("nvidia.com/gpu.product", ""))[1]
    if platform == "rocm":
        device = next((labels[key] for start in _AMD if (key := f"{start}device-id") in labels), "")
        product = next((labels[key] for start in _AMD if (key := f"{start}product-name") in labels), "")
        return DEVICES.get(device.lower().removeprefix("0x"), "") or identify(product)[1]
    return ""
