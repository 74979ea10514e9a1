"""AWS Elastic Fabric Adapter."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.fabrics.base import FabricKind, without_none
from pytest_hetgpu.model.job import Fabric


class Efa(FabricKind):
    """The interface of NCCL's first handshake, which is an ordinary one beside the adapter.

    No FI_PROVIDER: it would hold for every use of libfabric, also for a transport that asks for another provider. The
    transport `ofi` names its own, and NCCL's plugin asks for efa on EC2 (aws-ofi-nccl, src/platform-aws.c).
    """

    rdma = True

    def environment(self, fabric: Fabric) -> Mapping[str, str]:
        return without_none({"NCCL_SOCKET_IFNAME": fabric.netdev})
