"""HPE Slingshot."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.fabrics.base import FabricKind
from pytest_hetgpu.model.job import Fabric


class Slingshot(FabricKind):
    """Slingshot: NCCL and RCCL shake hands over its interfaces, whose names all begin with `hsn`.

    By default they may use the management network (LUMI, "Extreme-scale AI", question 6;
    https://docs.isambard.ac.uk/user-documentation/guides/nccl).

    FI_PROVIDER is not set: it would apply to every use of libfabric, even if a transport requires another provider. The
    transport `ofi` names its own, and the plugin of NCCL and RCCL finds cxi.
    """

    rdma = True

    def environment(self, fabric: Fabric) -> Mapping[str, str]:
        return {"NCCL_SOCKET_IFNAME": "hsn"}
