"""ucx: Open MPI's UCX point-to-point layer, and one of MPICH's network modules."""

from __future__ import annotations

import re

from pytest_hetgpu.model import Fabric, Node, Stack
from pytest_hetgpu.transports import _mpich, _openmpi
from pytest_hetgpu.transports._proof import Proof
from pytest_hetgpu.transports._ucx_log import DEBUG, INFO
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
_RDMA = re.compile(r"(ib|rc|ud|dc)(_\w+|x)?|\w+_(verbs|mlx5)|all|any")


class UcxSettings(TransportSettings):
    """`tls`: transports for UCX_TLS; `net_devices`: devices for UCX_NET_DEVICES, the fabric's when absent."""

    tls: Words = ("tcp", "self")
    net_devices: Words = ()


class Ucx(Transport):
    """PML ucx of Open MPI; ch4:ucx of MPICH."""

    Settings = UcxSettings
    settings: UcxSettings
    vendors = (_openmpi.VENDOR, _mpich.VENDOR)

    def render(self, node: Node, stack: Stack) -> Rendering:
        env = {"UCX_TLS": "all" if "any" in self.settings.tls else ",".join(self.settings.tls), **INFO}
        devices = self.settings.net_devices or self._devices(node.hardware.fabric)
        if devices:
            env["UCX_NET_DEVICES"] = ",".join(devices)
        if stack.vendor == _mpich.VENDOR:
            return _mpich.pinned("ucx", env)
        # Open MPI lets UCX in for RDMA-class transports only, unless told otherwise.
        mca = {"pml": "ucx", "opal_common_ucx_tls": "any", "opal_common_ucx_devices": "any"}
        return _openmpi.pinned(stack, mca, env)

    def _devices(self, fabric: Fabric) -> tuple[str, ...]:
        """The HCA for transports of RDMA, as `HCA:PORT`; else the interface; none leaves the choice to UCX."""
        if fabric.hca and any(map(_RDMA.fullmatch, self.settings.tls)):
            return (fabric.hca if ":" in fabric.hca else f"{fabric.hca}:1",)
        if fabric.netdev:
            return (fabric.netdev,)
        # The fabric's own UCX_NET_DEVICES names its HCA, which is no device for these transports.
        return ("all",) if fabric.hca else ()

    def verbose(self, stack: Stack) -> Rendering:
        if stack.vendor == _mpich.VENDOR:
            return _mpich.verbose(DEBUG)
        own = _openmpi.verbose((), DEBUG)
        return Rendering({**own.mca, "pml_ucx_verbose": "100", "opal_common_ucx_verbose": "100"}, own.env)

    def components(self) -> tuple[str, ...]:
        names = [name for tls in self.settings.tls if tls != "self" for name in _GROUPS.get(tls, (tls,))]
        return tuple(dict.fromkeys(f"ucx/{name}" for name in names))

    @staticmethod
    def reader() -> ProofReader:
        return Proof()
