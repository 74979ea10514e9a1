"""InfiniBand."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.fabrics.base import FabricKind, device_and_port, without_none
from pytest_hetgpu.model.job import Fabric


class Infiniband(FabricKind):
    """Names the HCA to NCCL and UCX, and to NCCL the interface of its first handshake; sources as for RoCE.

    Without an HCA both choose among all of the node, as they should where it has several. A GID index is RoCE's.
    """

    rdma = True
    link_layer = "InfiniBand"

    def environment(self, fabric: Fabric) -> Mapping[str, str]:
        return without_none(
            {
                "NCCL_IB_HCA": fabric.hca,
                "NCCL_SOCKET_IFNAME": fabric.netdev,
                "UCX_NET_DEVICES": device_and_port(fabric.hca),
            }
        )
