"""ucx: the UCX point-to-point layer of Open MPI, and one of the network modules of MPICH."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import model_validator

from pytest_hetgpu.extensions.runtimes.process.interface_names import kind_of
from pytest_hetgpu.extensions.transports import _mpich, _openmpi
from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser
from pytest_hetgpu.extensions.transports._netdev import netdev, nothing_up, only_loopback
from pytest_hetgpu.extensions.transports._ucx_log import DEBUG, INFO
from pytest_hetgpu.extensions.transports.base import (
    Rendering,
    Transport,
    TransportParser,
    TransportSettings,
    Words,
    unclassified,
)
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import Fabric, Node, Stack
from pytest_hetgpu.model.transport_classes import ANY, NO_CARRIER, RDMA, SHARED_MEMORY, TCP, OneSided, TransportMember

# UCX's names for groups of transports (ucp_tl_aliases in src/ucp/core/ucp_context.c).
_GROUPS = {
    "all": ("*",),
    "any": ("*",),
    "mm": ("posix", "sysv", "xpmem"),
    "sm": ("posix", "sysv", "cma", "knem", "xpmem"),
    "shm": ("posix", "sysv", "cma", "knem", "xpmem"),
    "ib": ("rc_*", "dc_*", "ud_*", "gga_mlx5", "srd"),
    "rc": ("rc_*", "ud_*"),
    "rc_v": ("rc_verbs",),
    "rc_x": ("rc_mlx5",),
    "dc": ("dc_*",),
    "dc_x": ("dc_mlx5",),
    "ud": ("ud_*",),
    "ud_v": ("ud_verbs",),
    "ud_x": ("ud_mlx5",),
    "gga": ("gga_mlx5",),
    "ugni": ("ugni_*",),
    "cuda": ("cuda_*", "gdr_copy"),
    "rocm": ("rocm_*",),
    "ze": ("ze_*",),
}
# Classes of UCX's transports (UCT_TL_DEFINE_ENTRY in src/uct) and groups. `cuda`, `rocm` and `ze` select
# all transports for device memory, on one host a copy or a mapping. `X:aux` only establishes connections.
_KINDS = {
    re.compile(r"all|any"): ANY,
    re.compile(r"self|(cuda|rocm|gdr|ze)_copy|(rocm|ze)_gdr|cuda|rocm|ze|.+:aux"): NO_CARRIER,
    re.compile(r"(rc|ud|dc|gga|ugni)(_\w+)?|ib|srd"): RDMA,
    re.compile(r"posix|sysv|cma|knem|xpmem|mm|sm|shm|(cuda|rocm|ze)_ipc"): SHARED_MEMORY,
    re.compile(r"tcp"): TCP,
}
_WITHIN = {"posix", "sysv", "cma", "knem", "xpmem", "mm", "sm", "shm", "all", "any"}
# From 1.19 on UCX looks up a route to the other rank, and loopback has none in the main table. MPICH 5 and Open MPI 5
# contain such a release in their wheels, Open MPI 4 contains 1.18.
_ROUTED_SINCE = 5


class UcxSettings(TransportSettings):
    """`tls`: transports for UCX_TLS; `net_devices`: devices for UCX_NET_DEVICES, the fabric's when absent."""

    tls: Words = ("tcp", "self")
    net_devices: Words = ()

    @model_validator(mode="after")
    def _can_be_ranked(self) -> UcxSettings:
        if not self.carried_by and (why := unclassified(_members(self.tls))):
            raise ValueError(why)
        return self


def _members(tls: Sequence[str]) -> tuple[TransportMember, ...]:
    return tuple(
        TransportMember(name, _kind(name), tuple(f"ucx/{one}" for one in _GROUPS.get(name, (name,)))) for name in tls
    )


def _kind(name: str) -> str:
    return next((kind for names, kind in _KINDS.items() if names.fullmatch(name)), "")


def _with_rdma(fabric: Fabric, classes: set[str], interface: InterfaceChoice, tcp: bool) -> InterfaceChoice | None:
    """Return the HCA, and the interface if the list names tcp itself: `all` would spread data over both.

    Only `all` over plain IP gets an interface alone. It would leave RDMA without a device, and that list requires none.
    """
    if not fabric.hca:
        return interface if fabric.kind == "tcp" and fabric.netdev and classes == {ANY} else None
    name = fabric.hca if ":" in fabric.hca else f"{fabric.hca}:1"
    if not (tcp and interface.name):
        return InterfaceChoice(name, "the HCA")
    return InterfaceChoice(f"{name},{interface.name}", "the HCA and the interface", interface.kind)


def _tcp(fabric: Fabric, interface: InterfaceChoice) -> InterfaceChoice:
    """Return the interface; `all` while it is not known, as the fabric or gid_index.py would name the HCA alone."""
    if interface.name or fabric.kind == "tcp":
        return interface
    return InterfaceChoice("all", "no interface is known, and the HCA is none for tcp")


class Ucx(Transport):
    """PML ucx of Open MPI; ch4:ucx of MPICH."""

    Settings = UcxSettings
    settings: UcxSettings
    vendors = (_openmpi.VENDOR, _mpich.VENDOR)

    def render(self, node: Node, stack: Stack) -> Rendering:
        env = {"UCX_TLS": "all" if "any" in self.settings.tls else ",".join(self.settings.tls), **INFO}
        device = self.interface(node)
        if device and device.name:
            env[self.interface_setting] = device.name
        # From 1.16 on UCX excludes bridges, even named ones. Older releases warn about the variable.
        if device and "bridge" in {device.kind, *map(kind_of, device.name.split(","))}:
            env["UCX_TCP_BRIDGE_ENABLE"] = "y"
        if stack.vendor == _mpich.VENDOR:
            return _mpich.pinned(stack, "ucx", env)
        # By default Open MPI enables UCX for RDMA-class transports only.
        mca = {"pml": "ucx", "opal_common_ucx_tls": "any", "opal_common_ucx_devices": "any"}
        return _openmpi.pinned(stack, mca, env)

    def one_sided(self, stack: Stack, benchmark: bool) -> tuple[Rendering, OneSided]:
        """Return `ucx` for Open MPI, whose worker has the same list; windows of MPICH use its network module."""
        if stack.vendor == _mpich.VENDOR:
            return _mpich.one_sided("ucx", self.components(), benchmark)
        return _openmpi.one_sided(stack, benchmark, "ucx", self.components())

    @property
    def interface_setting(self) -> str:
        return "UCX_NET_DEVICES"

    def interface(self, node: Node) -> InterfaceChoice | None:
        """Return the devices for UCX_NET_DEVICES, which restricts RDMA and tcp alike.

        RDMA needs the HCA as `HCA:PORT`, tcp the interface, a list of both needs both. Shared memory needs none. Until
        the HCA is known RDMA gets all devices: an interface alone would leave it without one.
        """
        if self.settings.net_devices:
            return netdev(node, ",".join(self.settings.net_devices), "net_devices")
        rdma, tcp = self._rdma, "tcp" in self.settings.tls
        if not rdma and not tcp:
            return None
        if named := node.hardware.env.get(self.interface_setting):
            return InterfaceChoice(named, f"{self.interface_setting} of {node.hardware.name} names it")
        interface = netdev(node, None)
        return _with_rdma(node.hardware.fabric, rdma, interface, tcp) if rdma else _tcp(node.hardware.fabric, interface)

    @property
    def _rdma(self) -> set[str]:
        """Return the classes of members that are or may be RDMA: groups and unknown members, too."""
        return {member.kind for member in self.members()} & {RDMA, ANY, ""}

    def unreachable(self, node: Node, stack: Stack) -> str | None:
        """Return why ranks of this node cannot reach each other.

        Since UCX looks up routes, its tcp does not connect over lo. Its other transports need no interface.
        """
        tls = {*self.settings.tls}
        nothing = nothing_up(node, stack.vendor)
        if not tls.isdisjoint(_WITHIN):
            return None if stack.vendor == _mpich.VENDOR else nothing
        if "tcp" not in tls or self._rdma or stack.major < _ROUTED_SINCE:
            return nothing
        return nothing or only_loopback(node, ",".join(self.settings.net_devices), f"UCX's tcp in {stack.name}")

    def verbose(self, stack: Stack) -> Rendering:
        if stack.vendor == _mpich.VENDOR:
            return _mpich.verbose(DEBUG)
        own = _openmpi.verbose((), DEBUG)
        return Rendering({**own.mca, "pml_ucx_verbose": "100", "opal_common_ucx_verbose": "100"}, own.env)

    def components(self) -> tuple[str, ...]:
        globs = (glob for one in self.members() if one.name != "self" for glob in one.components)
        return tuple(dict.fromkeys(globs))

    def members(self) -> tuple[TransportMember, ...]:
        return _members(self.settings.tls)

    @staticmethod
    def parser() -> TransportParser:
        return MpiTransportParser()
