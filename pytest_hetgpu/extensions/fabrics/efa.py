"""AWS Elastic Fabric Adapter."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.fabrics.base import FabricKind, without_none
from pytest_hetgpu.model.job import Fabric


class Efa(FabricKind):
    """EFA: the interface of the first handshake of NCCL, an ordinary one beside the adapter.

    FI_PROVIDER is not set: it would apply to every use of libfabric, even if a transport requires another provider. The
    transport `ofi` names its own, and aws-ofi-nccl requires efa on EC2 (src/platform-aws.c).
    """

    rdma = True

    def environment(self, fabric: Fabric) -> Mapping[str, str]:
        return without_none({"NCCL_SOCKET_IFNAME": fabric.netdev})
