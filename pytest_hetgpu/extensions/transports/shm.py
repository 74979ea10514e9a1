"""shm: the shared memory of the MPI itself, between ranks of one host."""

from __future__ import annotations

from pytest_hetgpu.extensions.transports import _mpich, _openmpi
from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser
from pytest_hetgpu.extensions.transports._netdev import nothing_up
from pytest_hetgpu.extensions.transports.base import Rendering, Transport, TransportParser
from pytest_hetgpu.model.job import Node, Stack
from pytest_hetgpu.model.transport_classes import SHARED_MEMORY, OneSided, TransportMember

_UCX = ("ucx/posix", "ucx/sysv", "ucx/cma", "ucx/knem", "ucx/xpmem")


class Shm(Transport):
    """ob1 over sm (vader on 4.x) in Open MPI, ch4 over posix in MPICH."""

    vendors = (_openmpi.VENDOR, _mpich.VENDOR)

    def render(self, node: Node, stack: Stack) -> Rendering:
        if stack.vendor == _mpich.VENDOR:
            return _mpich.pinned(stack, None)
        return _openmpi.ob1(stack, ("sm", "self"), "")

    def unreachable(self, node: Node, stack: Stack) -> str | None:
        return None if stack.vendor == _mpich.VENDOR else nothing_up(node, stack.vendor)

    def one_sided(self, stack: Stack, benchmark: bool) -> tuple[Rendering, OneSided]:
        """Return all components in shared memory. Some windows of MPICH use the network module."""
        if stack.vendor == _mpich.VENDOR:
            return Rendering(), OneSided((_mpich.SHARED_MEMORY, *_UCX), benchmark, logged=True)
        return _openmpi.one_sided(stack, benchmark, "sm,pt2pt", ("osc/rdma:sm", *_openmpi.IN_MEMORY), shared=True)

    def verbose(self, stack: Stack) -> Rendering:
        return _mpich.verbose() if stack.vendor == _mpich.VENDOR else _openmpi.verbose(("bml", "btl"))

    def components(self) -> tuple[str, ...]:
        return ("ob1/sm", _mpich.SHARED_MEMORY)

    def members(self) -> tuple[TransportMember, ...]:
        return (TransportMember("shm", SHARED_MEMORY, self.components()),)

    @staticmethod
    def parser() -> TransportParser:
        return MpiTransportParser()
