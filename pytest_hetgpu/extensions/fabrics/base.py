"""What every kind of fabric says: the variables its nodes need, and whether its data passes the kernel by."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import ClassVar

from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.model.job import Fabric


class FabricKind(abc.ABC):
    """One kind of network between nodes.

    `rdma`: its adapters move data past the kernel, so that the byte counters of a node's interface stay flat meanwhile.
    `link_layer` is how sysfs calls the ports of its HCAs (`/sys/class/infiniband/*/ports/*/link_layer`), "" where it
    has none there.
    """

    rdma: ClassVar[bool] = False
    link_layer: ClassVar[str] = ""

    @abc.abstractmethod
    def environment(self, fabric: Fabric) -> Mapping[str, str]:
        """Variables for every rank on such a node, the lowest layer of its environment; what is not known is left out.

        Only what no transport of its own could say better: a variable here holds for all transports.
        """


GID_INDEX = "gid_index.py"
"""The program that finds a GID index on a node, and hands it to another one."""


def gid_needed(fabric: Fabric) -> bool:
    """Return whether ranks on the fabric need a GID index that nobody has given: RoCE's, which only its node knows."""
    kind = find("fabrics", fabric.kind, FabricKind)  # type: ignore[type-abstract]
    return kind.rdma and kind.link_layer == "Ethernet" and fabric.gid_index is None


def gid_arguments(fabric: Fabric) -> tuple[str, str]:
    """Return the arguments of `gid_index.py` for a fabric."""
    return fabric.hca or "-", fabric.named or "-"


def without_none(variables: Mapping[str, str | None]) -> dict[str, str]:
    """Those variables that have a value."""
    return {name: value for name, value in variables.items() if value is not None}


def device_and_port(hca: str | None) -> str | None:
    """An HCA as UCX_NET_DEVICES names it: `mlx5_0` is `mlx5_0:1`, as adapters of one port have it."""
    return hca if hca is None or ":" in hca else f"{hca}:1"
