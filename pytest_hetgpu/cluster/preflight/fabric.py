"""Warnings about networks: missing or forbidden RDMA, providers, interfaces, MTUs."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from pytest_hetgpu.cluster.preflight.warning import CheckedJob, CheckedNode, PreflightWarning
from pytest_hetgpu.extensions.probes.rdma import choose, table
from pytest_hetgpu.extensions.runtimes.lookup import runtime_of
from pytest_hetgpu.extensions.runtimes.process.interface_names import kind_of
from pytest_hetgpu.model.facts import FactState
from pytest_hetgpu.model.verdict import Kind

_RDMA_KINDS = ("roce", "infiniband")
# Groups and transports of UCX that need an RDMA device ("Which transports does UCX use?").
_RDMA_TLS = ("ib", "rc", "rc_*", "dc", "dc_*", "ud", "ud_*")
# Queues and registered buffers of one UCX worker or NCCL channel take tens of MB; 64 KiB is the old default of Linux.
ENOUGH_MEMLOCK = 64 * 1024**2
HOPELESS_MEMLOCK = 64 * 1024


def warnings(cell: CheckedJob) -> Iterator[PreflightWarning]:
    """Yield the warnings about every node with ranks, then about differences between them."""
    for member in cell.ranked:
        yield from _interface(member)
        if rdma_wanted(cell, member):
            yield from _rdma(member)
            yield from memlock(member.name, member.environment.text("memlock"))
        if cell.uses("ofi"):
            yield from _provider(cell, member)
        yield from _slingshot(cell, member)
        yield from _bridge(cell, member)
    yield from _mtu(cell)


def rdma_wanted(cell: CheckedJob, member: CheckedNode) -> bool:
    """Return whether a cell uses RDMA on a node: NCCL if its fabric has RDMA, UCX and libfabric if configured."""
    if not cell.spread:
        return False
    if cell.job.demand.transport_family == "nccl":
        return member.node.hardware.fabric.kind in _RDMA_KINDS
    if cell.uses("ucx"):
        return any(fnmatchcase(word, glob) for word in member.words("UCX_TLS") for glob in _RDMA_TLS)
    return "verbs" in cell.components("ofi")


def _interface(member: CheckedNode) -> Iterator[PreflightWarning]:
    wanted = member.node.hardware.fabric.netdev
    nics = member.environment.items("nics")
    if wanted and nics and wanted != "lo" and wanted not in nics:
        why = f"its interface {wanted} is not there, or not up (up are: {', '.join(nics)})"
        yield PreflightWarning(Kind.TRANSPORT_UNAVAILABLE, member.name, why, "correct `fabric.netdev` in the matrix")


def _rdma(member: CheckedNode) -> Iterator[PreflightWarning]:
    environment, fabric = member.environment, member.node.hardware.fabric
    if environment.is_absent("rdma"):
        why = "there is no RDMA device"
        remedy = runtime_of(member.node.hardware.runtime).rdma_advice
        yield PreflightWarning(Kind.TRANSPORT_UNAVAILABLE, member.name, why, remedy)
        return
    if environment.items("rdma") and environment.is_absent("dev_infiniband"):
        why = "an RDMA device is there, but not /dev/infiniband, through which programs use it"
        yield PreflightWarning(
            Kind.TRANSPORT_UNAVAILABLE, member.name, why, "give the container --device=/dev/infiniband"
        )
    if fabric.kind == "roce":
        yield from _gid(member)


def _gid(member: CheckedNode) -> Iterator[PreflightWarning]:
    environment, fabric = member.environment, member.node.hardware.fabric
    if environment.fact("rdma.roce").state is FactState.UNKNOWN:
        return
    rows = table(environment.facts)
    picked = choose(rows, fabric.named, fabric.hca)
    remedy = "give the HCA's interface an IPv4 address and bring it up; RoCE v1 alone does not do"
    if isinstance(picked, str):
        yield PreflightWarning(Kind.TRANSPORT_UNAVAILABLE, member.name, f"no IPv4 RoCE v2 GID: {picked}", remedy)
    elif fabric.gid_index is not None and not _good(member, fabric.gid_index):
        why = (
            f"GID index {fabric.gid_index} of the matrix is no IPv4 RoCE v2 GID; {picked.gid_index} of {picked.hca} is"
        )
        yield PreflightWarning(Kind.TRANSPORT_UNAVAILABLE, member.name, why, "leave `gid_index` out of the matrix")


def _good(member: CheckedNode, index: int) -> bool:
    fabric = member.node.hardware.fabric
    rows = tuple(row for row in table(member.environment.facts) if row.row == index)
    return not isinstance(choose(rows, fabric.named, fabric.hca), str)


def memlock(name: str, limit: str | None) -> Iterator[PreflightWarning]:
    """Yield a warning if too little memory may be locked for RDMA."""
    if limit is None or limit == "unlimited" or int(limit) >= ENOUGH_MEMLOCK:
        return
    why = f"only {int(limit) // 1024} KiB of memory may be locked, and RDMA locks what it registers"
    remedy = "ulimit -l unlimited (a container: --ulimit memlock=-1; ssh: /etc/security/limits.conf)"
    yield PreflightWarning(Kind.TRANSPORT_UNAVAILABLE, name, why, remedy, certain=int(limit) <= HOPELESS_MEMLOCK)


def _provider(cell: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    known = member.environment.items("libfabric.providers")
    for wanted in cell.components("ofi"):
        names = wanted.split(";")
        if known and "*" not in wanted and not all(name in known for name in names):
            why = f"libfabric has no provider {wanted} (it has: {', '.join(known)})"
            remedy = "install a libfabric built with it"
            if wanted == "cxi":
                remedy = "bring the host's libfabric and libcxi into the container"
            yield PreflightWarning(Kind.TRANSPORT_UNAVAILABLE, member.name, why, remedy)


def _slingshot(cell: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    if member.node.hardware.fabric.kind != "slingshot" or not cell.spread:
        return
    if "cxi" in cell.components("ofi") and member.environment.is_absent("cxi"):
        why = "there is no Slingshot device (/sys/class/cxi, /dev/cxi*)"
        yield PreflightWarning(
            Kind.TRANSPORT_UNAVAILABLE, member.name, why, "bind /dev/cxi* and /sys/class/cxi into the container"
        )
    library = "rccl" if member.platform == "rocm" else "nccl"
    if cell.job.demand.transport_family == "nccl" and member.environment.is_absent(f"{library}.plugins"):
        why = f"{library.upper()} finds no network plugin, and without one it takes TCP sockets over Slingshot"
        remedy = "put aws-ofi-rccl's librccl-net.so (libnccl-net.so) into LD_LIBRARY_PATH"
        yield PreflightWarning(Kind.SLOW, member.name, why, remedy, certain=False)


def _bridge(cell: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    """Yield a warning if TCP of Open MPI may use a bridge.

    It uses every interface. A bridge may have the same address on every host, and the job then hangs.
    """
    if not cell.uses("ob1") or "tcp" not in cell.components("ob1") or not cell.spread:
        return
    bridges = [name for name in member.environment.items("nics") if kind_of(name) == "bridge"]
    if bridges and not cell.mca("btl_tcp_if_include") and not cell.mca("btl_tcp_if_exclude"):
        why = f"Open MPI's TCP may pick the bridge {bridges[0]}, over which other nodes cannot be reached"
        remedy = "name the interface: `fabric: {netdev: ...}` of the hardware, or `netdev` of the transport"
        yield PreflightWarning(Kind.HANG, member.name, why, remedy, certain=False)


def _mtu(cell: CheckedJob) -> Iterator[PreflightWarning]:
    sizes: dict[str, CheckedNode] = {}
    for member in cell.ranked:
        netdev = member.node.hardware.fabric.netdev
        mtu = member.environment.text(f"nics.{netdev}.mtu") if netdev else None
        if mtu:
            sizes.setdefault(mtu, member)
    if len(sizes) > 1:
        (first, one), (second, other) = list(sizes.items())[:2]
        why = f"its interface sends packets of {second} bytes, that of {one.name} {first}"
        remedy = "set one MTU on all nodes and on the switches between them"
        yield PreflightWarning(Kind.NETWORK_FAILURE, other.name, why, remedy, certain=False)
