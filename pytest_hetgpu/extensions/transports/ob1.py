"""ob1: the point-to-point layer of Open MPI over byte transfer layers (tcp, sm, self)."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import model_validator

from pytest_hetgpu.extensions.transports import _openmpi
from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser
from pytest_hetgpu.extensions.transports._netdev import netdev, nothing_up
from pytest_hetgpu.extensions.transports.base import (
    Interfaces,
    Rendering,
    Transport,
    TransportParser,
    TransportSettings,
    Words,
    unclassified,
)
from pytest_hetgpu.model.interfaces import FREE, LOOPBACK, InterfaceChoice
from pytest_hetgpu.model.job import Node, Stack
from pytest_hetgpu.model.transport_classes import NO_CARRIER, RDMA, SHARED_MEMORY, TCP, OneSided, TransportMember

# Classes of Open MPI's byte transfer layers (opal/mca/btl). `ofi` has libfabric's provider, which may be of any class.
_KINDS = {
    "self": NO_CARRIER,
    **dict.fromkeys(("sm", "vader", "smcuda"), SHARED_MEMORY),
    **dict.fromkeys(("openib", "uct", "ugni", "usnic", "portals4"), RDMA),
    "tcp": TCP,
}


class Ob1Settings(TransportSettings):
    """`btl`: byte transfer layers to allow, by their names in Open MPI 5; `netdev`: the interface for tcp."""

    btl: Words = ("tcp", "self")
    netdev: Interfaces = None

    @model_validator(mode="after")
    def _can_be_ranked(self) -> Ob1Settings:
        if not self.carried_by and (why := unclassified(_members(self.btl))):
            raise ValueError(why)
        return self


def _members(btl: Sequence[str]) -> tuple[TransportMember, ...]:
    return tuple(TransportMember(name, _KINDS.get(name, ""), (f"ob1/{_openmpi.plain(name)}",)) for name in btl)


class Ob1(Transport):
    """PML ob1. Its proof names the byte transfer layer that each rank uses for each other, on 4.x as on 5."""

    Settings = Ob1Settings
    settings: Ob1Settings
    vendors = (_openmpi.VENDOR,)

    def render(self, node: Node, stack: Stack) -> Rendering:
        return _openmpi.ob1(stack, self.settings.btl, self._device(node).name)

    @property
    def interface_setting(self) -> str:
        return "btl_tcp_if_include"

    @property
    def exclusion_setting(self) -> str:
        return "btl_tcp_if_exclude"

    def interface(self, node: Node) -> InterfaceChoice | None:
        return self._device(node) if "tcp" in self.settings.btl else None

    def _device(self, node: Node) -> InterfaceChoice:
        """Return the interface for tcp; loopback for ranks of one host whose interfaces are not known."""
        chosen = netdev(node, self.settings.netdev)
        one_host = node.hardware.runtime == "local" or node.hardware.fabric.netdev == LOOPBACK
        return InterfaceChoice(LOOPBACK, chosen.why) if one_host and not chosen.name and chosen.kind != FREE else chosen

    def unreachable(self, node: Node, stack: Stack) -> str | None:
        return nothing_up(node, stack.vendor)

    def one_sided(self, stack: Stack, benchmark: bool) -> tuple[Rendering, OneSided]:
        """Return `pt2pt` for release 4, and `rdma` over the same byte transfer layers for release 5."""
        carriers = [one.name for one in self.members() if one.kind != NO_CARRIER]
        shared = any(one.kind == SHARED_MEMORY for one in self.members())
        names = tuple(f"osc/rdma:{_openmpi.plain(name)}" for name in carriers)
        old = "sm,pt2pt" if shared else "pt2pt"
        return _openmpi.one_sided(stack, benchmark, old, (*names, *_openmpi.IN_MEMORY * shared), shared=shared)

    def verbose(self, stack: Stack) -> Rendering:
        return _openmpi.verbose(("bml", "btl"))

    def components(self) -> tuple[str, ...]:
        return tuple(glob for one in self.members() if one.name != "self" for glob in one.components)

    def members(self) -> tuple[TransportMember, ...]:
        return _members(self.settings.btl)

    @staticmethod
    def parser() -> TransportParser:
        return MpiTransportParser()
