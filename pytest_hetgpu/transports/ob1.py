"""ob1: Open MPI's own point-to-point layer over byte transfer layers (tcp, sm, self)."""

from __future__ import annotations

from pytest_hetgpu.model import Node, Stack
from pytest_hetgpu.transports._openmpi import DISPLAY, OpenMpiReader, netdev, shows_connections
from pytest_hetgpu.transports.base import ProofReader, Rendering, Transport, TransportSettings, Words


class Ob1Settings(TransportSettings):
    """`btl`: byte transfer layers to allow; `netdev`: the interface for tcp."""

    btl: Words = ("tcp", "self")
    netdev: str | None = None


class Ob1(Transport):
    """PML ob1."""

    Settings = Ob1Settings
    settings: Ob1Settings

    def render(self, node: Node, stack: Stack) -> Rendering:
        mca = {"pml": "ob1", "btl": ",".join(self.settings.btl)}
        if "tcp" in self.settings.btl:
            mca["btl_tcp_if_include"] = netdev(node, self.settings.netdev)
        return Rendering(mca | (DISPLAY if shows_connections(stack) else {}))

    def components(self) -> tuple[str, ...]:
        return tuple(f"ob1/{name}" for name in self.settings.btl if name != "self")

    @staticmethod
    def reader() -> ProofReader:
        return OpenMpiReader()
