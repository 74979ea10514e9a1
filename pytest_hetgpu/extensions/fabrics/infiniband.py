"""InfiniBand."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.fabrics.base import FabricKind, device_and_port, without_none
from pytest_hetgpu.model.job import Fabric


class Infiniband(FabricKind):
    """InfiniBand: the HCA for NCCL and UCX, and the interface of the first handshake of NCCL. Sources as for RoCE.

    Without an HCA both choose among all of the node, which is right for several HCAs. Only RoCE needs a GID index.
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
