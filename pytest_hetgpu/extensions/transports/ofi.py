"""ofi: libfabric, as mtl/ofi of Open MPI (under pml cm) and as one of the network modules of MPICH."""

from __future__ import annotations

from pytest_hetgpu.extensions.transports import _mpich, _openmpi
from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser
from pytest_hetgpu.extensions.transports._netdev import netdev, nothing_up, only_loopback
from pytest_hetgpu.extensions.transports.base import Rendering, Transport, TransportParser, TransportSettings, Word
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import Node, Stack
from pytest_hetgpu.model.transport_classes import RDMA, SHARED_MEMORY, TCP, OneSided, TransportMember

# Classes of libfabric's providers (fi_provider(7)).
_KINDS = {
    **dict.fromkeys(("verbs", "cxi", "efa", "psm2", "psm3", "opx", "gni", "usnic", "ucx"), RDMA),
    **dict.fromkeys(("tcp", "sockets", "udp", "net"), TCP),
    "shm": SHARED_MEMORY,
}


class OfiSettings(TransportSettings):
    """`provider`: libfabric's provider (tcp, cxi, efa, verbs); `netdev`: the interface of one over IP (tcp)."""

    provider: Word = "tcp"
    netdev: Word | None = None


class Ofi(Transport):
    """Libfabric with one provider; its utility layers (`;ofi_rxm`) belong to the provider."""

    Settings = OfiSettings
    settings: OfiSettings
    vendors = (_openmpi.VENDOR, _mpich.VENDOR)

    def render(self, node: Node, stack: Stack) -> Rendering:
        provider = self.settings.provider
        device = self.interface(node)
        env = {self.interface_setting: device.name} if device and device.name else {}
        if stack.vendor == _mpich.VENDOR:
            return _mpich.pinned(stack, "ofi", {"FI_PROVIDER": provider, **env})
        # FI_PROVIDER alone does not help: Open MPI excludes tcp, sockets and shm by default.
        mca = {"pml": "cm", "mtl": "ofi", "opal_common_ofi_provider_include": provider, "opal_common_ofi_verbose": "1"}
        return _openmpi.pinned(stack, mca, env)

    def one_sided(self, stack: Stack, benchmark: bool) -> tuple[Rendering, OneSided]:
        """Return `pt2pt` for release 4. Release 5 has only byte transfer layers, of which `ofi` needs native RDMA."""
        if stack.vendor == _mpich.VENDOR:
            return _mpich.one_sided("ofi", self.components(), benchmark)
        return _openmpi.one_sided(stack, benchmark, "pt2pt", ("osc/rdma:ofi",))

    @property
    def interface_setting(self) -> str:
        """Return FI_TCP_IFACE, FI_SOCKETS_IFACE or FI_UDP_IFACE: the `iface` of each provider over IP."""
        provider = self.settings.provider
        return f"FI_{provider.upper()}_IFACE" if _KINDS.get(provider) == TCP else ""

    def interface(self, node: Node) -> InterfaceChoice | None:
        return netdev(node, self.settings.netdev) if self.interface_setting else None

    def unreachable(self, node: Node, stack: Stack) -> str | None:
        """Return why ranks of this node cannot reach each other by libfabric.

        Open MPI requests endpoints that reach other hosts too, and libfabric's tcp provider has none on lo.
        """
        mpich = stack.vendor == _mpich.VENDOR
        if self.settings.provider != "tcp":
            return None if mpich else nothing_up(node, stack.vendor)
        loopback = None if mpich else only_loopback(node, self.settings.netdev, f"OFI of {stack.vendor}")
        return nothing_up(node, stack.vendor) or loopback

    def verbose(self, stack: Stack) -> Rendering:
        debug = {"FI_LOG_LEVEL": "debug"}
        if stack.vendor == _mpich.VENDOR:
            return _mpich.verbose(debug)
        own = _openmpi.verbose(("mtl",), debug)
        return Rendering({**own.mca, "opal_common_ofi_verbose": "100"}, own.env)

    def components(self) -> tuple[str, ...]:
        return (f"ofi/{self.settings.provider}",)

    def members(self) -> tuple[TransportMember, ...]:
        provider = self.settings.provider
        return (TransportMember(provider, _KINDS.get(provider, ""), self.components()),)

    @staticmethod
    def parser() -> TransportParser:
        return MpiTransportParser()
