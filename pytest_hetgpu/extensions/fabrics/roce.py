"""RDMA over Converged Ethernet."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.fabrics.base import FabricKind, device_and_port, without_none
from pytest_hetgpu.model.job import Fabric


class Roce(FabricKind):
    """RoCE: the HCA and the GID for every library that would otherwise guess.

    The variables of NCCL, with numbers of sockets and threads: EPFL RCP, "Using RDMA for efficient inter-node
    communication". NCCL_IB_HCA takes a name or a prefix, NCCL_SOCKET_IFNAME is the interface of its first handshake
    (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html). For UCX, UCX_NET_DEVICES is `HCA:PORT`
    (https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/ib-and-roce.html), UCX_IB_GID_INDEX as in `ucx_info
    -cf`.
    """

    rdma = True
    link_layer = "Ethernet"

    def environment(self, fabric: Fabric) -> Mapping[str, str]:
        gid = None if fabric.gid_index is None else str(fabric.gid_index)
        return without_none(
            {
                "NCCL_IB_HCA": fabric.hca,
                "NCCL_IB_GID_INDEX": gid,
                "NCCL_SOCKET_IFNAME": fabric.netdev,
                "NCCL_SOCKET_NTHREADS": "4",
                "NCCL_NSOCKS_PERTHREAD": "8",
                "UCX_NET_DEVICES": device_and_port(fabric.hca),
                "UCX_IB_GID_INDEX": gid,
            }
        )
