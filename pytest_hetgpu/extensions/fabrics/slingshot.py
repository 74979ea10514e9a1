"""HPE Slingshot."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.fabrics.base import FabricKind
from pytest_hetgpu.model.job import Fabric


class Slingshot(FabricKind):
    """NCCL and RCCL shake hands over the interfaces of Slingshot, whose names all begin with `hsn`.

    Left to themselves they may take the management network (LUMI, "Extreme-scale AI", question 6;
    https://docs.isambard.ac.uk/user-documentation/guides/nccl).

    No FI_PROVIDER: it would hold for every use of libfabric, also for a transport that asks for another provider. The
    transport `ofi` names its own, and the plugin of NCCL and RCCL finds cxi.
    """

    rdma = True

    def environment(self, fabric: Fabric) -> Mapping[str, str]:
        return {"NCCL_SOCKET_IFNAME": "hsn"}
