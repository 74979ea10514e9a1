"""ofi: libfabric, which is Open MPI's mtl/ofi (under pml cm) and one of MPICH's network modules."""

from __future__ import annotations

from pytest_hetgpu.model import Node, Stack
from pytest_hetgpu.transports import _mpich, _openmpi
from pytest_hetgpu.transports._proof import Proof
from pytest_hetgpu.transports.base import ProofReader, Rendering, Transport, TransportSettings, Word


class OfiSettings(TransportSettings):
    """`provider`: libfabric's provider (tcp, cxi, efa, verbs); `netdev`: the interface for provider tcp."""

    provider: Word = "tcp"
    netdev: Word | None = None


class Ofi(Transport):
    """Libfabric with one provider; its utility layers (`;ofi_rxm`) belong to the provider."""

    Settings = OfiSettings
    settings: OfiSettings
    vendors = (_openmpi.VENDOR, _mpich.VENDOR)

    def render(self, node: Node, stack: Stack) -> Rendering:
        provider = self.settings.provider
        device = (self.settings.netdev or node.hardware.fabric.netdev) if provider == "tcp" else None
        env = {"FI_TCP_IFACE": device} if device else {}
        if stack.vendor == _mpich.VENDOR:
            return _mpich.pinned("ofi", {"FI_PROVIDER": provider, **env})
        # FI_PROVIDER alone does not help: Open MPI excludes tcp, sockets and shm unless told otherwise.
        mca = {"pml": "cm", "mtl": "ofi", "opal_common_ofi_provider_include": provider, "opal_common_ofi_verbose": "1"}
        return _openmpi.pinned(stack, mca, env)

    def verbose(self, stack: Stack) -> Rendering:
        debug = {"FI_LOG_LEVEL": "debug"}
        if stack.vendor == _mpich.VENDOR:
            return _mpich.verbose(debug)
        own = _openmpi.verbose(("mtl",), debug)
        return Rendering({**own.mca, "opal_common_ofi_verbose": "100"}, own.env)

    def components(self) -> tuple[str, ...]:
        return (f"ofi/{self.settings.provider}",)

    @staticmethod
    def reader() -> ProofReader:
        return Proof()
