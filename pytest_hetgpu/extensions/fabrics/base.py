"""The interface of fabrics: variables for their nodes, and whether their data bypasses the kernel."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import ClassVar

from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.model.job import Fabric


class FabricKind(abc.ABC):
    """One kind of network between nodes.

    `rdma`: its adapters bypass the kernel, so the byte counters of a node's interface do not count the data.
    `link_layer` is sysfs' name for the ports of its HCAs (`/sys/class/infiniband/*/ports/*/link_layer`), "" without
    one.
    """

    rdma: ClassVar[bool] = False
    link_layer: ClassVar[str] = ""

    @abc.abstractmethod
    def environment(self, fabric: Fabric) -> Mapping[str, str]:
        """Return variables for every rank on such a node, the lowest layer of its environment.

        Unknown values are left out. The variables apply to all transports. So a variable that a transport can set more
        precisely must not be here.
        """


GID_INDEX = "gid_index.py"
"""Program that finds a GID index on a node, and passes it to another program."""


def gid_needed(fabric: Fabric) -> bool:
    """Return whether ranks on the fabric need a GID index that is not set. RoCE's is known to its node only."""
    kind = find("fabrics", fabric.kind, FabricKind)  # type: ignore[type-abstract]
    return kind.rdma and kind.link_layer == "Ethernet" and fabric.gid_index is None


def gid_arguments(fabric: Fabric) -> tuple[str, str]:
    """Return the arguments of `gid_index.py` for a fabric."""
    return fabric.hca or "-", fabric.named or "-"


def without_none(variables: Mapping[str, str | None]) -> dict[str, str]:
    """Return the variables that have a value."""
    return {name: value for name, value in variables.items() if value is not None}


def device_and_port(hca: str | None) -> str | None:
    """Return an HCA for UCX_NET_DEVICES: `mlx5_0` is `mlx5_0:1`, as on adapters with one port."""
    return hca if hca is None or ":" in hca else f"{hca}:1"
