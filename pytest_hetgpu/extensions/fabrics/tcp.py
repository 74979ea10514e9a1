"""Plain IP over Ethernet."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.fabrics.base import FabricKind
from pytest_hetgpu.model.job import Fabric


class Tcp(FabricKind):
    """TCP: no variables. Each transport pins the fabric's interface by a setting of its own library."""

    def environment(self, fabric: Fabric) -> Mapping[str, str]:
        return {}
