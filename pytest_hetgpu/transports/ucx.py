"""ucx: Open MPI's UCX point-to-point layer."""

from __future__ import annotations

from pytest_hetgpu.model import Node, Stack
from pytest_hetgpu.transports._openmpi import DISPLAY, OpenMpiReader, shows_connections
from pytest_hetgpu.transports.base import ProofReader, Rendering, Transport, TransportSettings, Words

# UCX's names for groups of transports (UCX documentation, "Which transports does UCX use?").
_GROUPS = {
    "all": ("*",),
    "any": ("*",),
    "sm": ("posix", "sysv", "cma", "knem", "xpmem"),
    "shm": ("posix", "sysv", "cma", "knem", "xpmem"),
    "ib": ("rc_*", "dc_*", "ud_*"),
    "rc": ("rc_*", "ud_*"),
    "dc": ("dc_*",),
    "ud": ("ud_*",),
    "cuda": ("cuda_*", "gdr_copy"),
    "rocm": ("rocm_*",),
}


class UcxSettings(TransportSettings):
    """`tls`: transports for UCX_TLS; `net_devices`: devices for UCX_NET_DEVICES, UCX's own choice when absent."""

    tls: Words = ("tcp", "self")
    net_devices: Words = ()


class Ucx(Transport):
    """PML ucx."""

    Settings = UcxSettings
    settings: UcxSettings

    def render(self, node: Node, stack: Stack) -> Rendering:
        # Open MPI lets UCX in for RDMA-class transports only, unless told otherwise.
        mca = {"pml": "ucx", "opal_common_ucx_tls": "any", "opal_common_ucx_devices": "any"}
        env = {"UCX_TLS": "all" if "any" in self.settings.tls else ",".join(self.settings.tls), "UCX_LOG_LEVEL": "info"}
        devices = self.settings.net_devices or tuple(filter(None, (node.hardware.fabric.netdev,)))
        if devices:
            env["UCX_NET_DEVICES"] = ",".join(devices)
        return Rendering(mca | (DISPLAY if shows_connections(stack) else {}), env)

    def components(self) -> tuple[str, ...]:
        names = [name for tls in self.settings.tls if tls != "self" for name in _GROUPS.get(tls, (tls,))]
        return tuple(dict.fromkeys(f"ucx/{name}" for name in names))

    @staticmethod
    def reader() -> ProofReader:
        return OpenMpiReader()
