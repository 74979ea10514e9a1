"""auto: the default choice of the MPI, which the results report."""

from __future__ import annotations

from pytest_hetgpu.extensions.transports import _mpich, _openmpi
from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser
from pytest_hetgpu.extensions.transports._netdev import nothing_up
from pytest_hetgpu.extensions.transports._ucx_log import DEBUG
from pytest_hetgpu.extensions.transports.base import Rendering, Transport, TransportParser
from pytest_hetgpu.model.job import Node, Stack
from pytest_hetgpu.model.transport_classes import OneSided


class Auto(Transport):
    """Nothing is pinned, anything may be used as long as it shows itself."""

    vendors = (_openmpi.VENDOR, _mpich.VENDOR)

    def render(self, node: Node, stack: Stack) -> Rendering:
        return _mpich.pinned(stack, None) if stack.vendor == _mpich.VENDOR else _openmpi.pinned(stack, {})

    def unreachable(self, node: Node, stack: Stack) -> str | None:
        return None if stack.vendor == _mpich.VENDOR else nothing_up(node, stack.vendor)

    def one_sided(self, stack: Stack, benchmark: bool) -> tuple[Rendering, OneSided]:
        """Return the log of windows alone."""
        if stack.vendor == _mpich.VENDOR or _openmpi.is_old(stack):
            return Rendering(), OneSided(("*",), benchmark)
        return Rendering(_openmpi.SHOW_5), OneSided(("*",), benchmark, logged=True)

    def verbose(self, stack: Stack) -> Rendering:
        debug = {**DEBUG, "FI_LOG_LEVEL": "warn"}
        if stack.vendor == _mpich.VENDOR:
            return _mpich.verbose(debug)
        return _openmpi.verbose(("bml", "btl", "mtl"), debug)

    def components(self) -> tuple[str, ...]:
        return ("*",)

    @staticmethod
    def parser() -> TransportParser:
        return MpiTransportParser()
