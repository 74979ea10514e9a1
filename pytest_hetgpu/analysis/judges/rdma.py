"""Judge of RDMA: whether data between hosts bypassed their kernels, on fabrics that support it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_hetgpu.analysis.judges.base import FinishedRun, Judge, Precedence, RatedFinding
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.records import Row
from pytest_hetgpu.model.transport_classes import OFF_HOST, RDMA
from pytest_hetgpu.model.verdict import Kind

TOO_LITTLE = 32_000_000
"""Bytes below which the launcher's own traffic (connections, output of ranks) may equal that of the data."""

# Half of the data is more than a launcher sends. If the list also has tcp, RDMA must carry some of the data.
_NONE, _BESIDE = 0.5, 0.9
_IP = frozenset(("tcp", "sockets", "udp"))
_WITHIN = frozenset(("self", "sm", "posix", "sysv", "cma", "knem", "xpmem", "gdr_copy", "cuda_*", "rocm_*", "smcuda"))


class RdmaJudge(Judge):
    """RDMA moves data through an HCA that counts it, and without the kernel: the counters of the interface stay flat.

    Either proves RDMA. The interface's counters do if nothing else uses the interface
    (EPFL RCP, "Using RDMA for efficient inter-node communication"). Inside a host there is nothing to prove, nor in a
    cell whose data may go over IP.
    """

    name = "rdma"

    def evaluate(self, run: FinishedRun) -> Iterator[RatedFinding]:
        job, traffic, hca_traffic = run.job, run.result.traffic, run.result.hca_traffic
        share = _allowed(job)
        if not job.demand.rdma or len(placed := _placed(job)) < 2 or share is None:
            return
        loads = [(place, _load(run.evidence.rows, place, placed)) for place in placed]
        # What an HCA has counted is proven, though it may pass the interface as well: Soft-RoCE sends it by the kernel.
        # An HCA that counted less proves nothing: the data may have taken another one.
        loads = [
            (place, owed)
            for place, owed in loads
            if owed >= TOO_LITTLE and (place.bytes_in(hca_traffic) or 0) < owed * (1 - share)
        ]
        uncounted = [place.names[0] for place, _ in loads if place.bytes_in(traffic) is None]
        if uncounted and share < _BESIDE:
            where = ", ".join(uncounted[:5])
            why = f"nothing proves that RDMA was used: no bytes were counted of the interface of {where}"
            yield self.finding(Kind.UNKNOWN, f"{why} (does the fabric name its netdev?)", Precedence.INDIRECT)
        for place, owed in loads:
            seen = place.bytes_in(traffic) or 0
            if seen > owed * share:
                through = f"{_shown(seen)} went through {place.netdev} of {place.names[0]}"
                why = f"RDMA was not used: {through}, while the ranks there had to move {_shown(owed)}"
                yield self.finding(Kind.TRANSPORT_UNAVAILABLE, why)


def _allowed(job: Job) -> float | None:
    """Return the share of the data that may pass the interface; None if RDMA is not requested between hosts.

    A list may have tcp beside RDMA, which then must not carry nearly all of the data.
    """
    if _asks_for_rdma(job.demand.transports):
        return _NONE
    duty = job.demand.duties.get(OFF_HOST)
    return _BESIDE if duty and duty.kind == RDMA else None


class HostNodes(NamedTuple):
    """A host with its nodes: their names, the ranks on it, the interface of the first."""

    names: tuple[str, ...]
    ranks: frozenset[int]
    netdev: str

    def bytes_in(self, traffic: Mapping[str, int]) -> int | None:
        """Return the bytes that its interface or HCA moved, the largest count of its nodes; None if none counted."""
        return max((traffic[name] for name in self.names if name in traffic), default=None)


def _placed(job: Job) -> list[HostNodes]:
    hosts: dict[str, HostNodes] = {}
    first = 0
    for node in job.nodes:
        before = hosts.get(node.host, HostNodes((), frozenset(), node.hardware.fabric.netdev or "its interface"))
        ranks = before.ranks | set(range(first, first + node.ranks))
        hosts[node.host] = before._replace(names=(*before.names, node.name), ranks=ranks)
        first += node.ranks
    return list(hosts.values())


def _asks_for_rdma(components: Sequence[str]) -> bool:
    """Return whether no component is IP. The `*` of `auto` may stand for any."""
    names = [component.rpartition("/")[2] for component in components]
    if "*" in components or not _IP.isdisjoint(names):
        return False
    return any(name not in _WITHIN for name in names)


def _load(rows: Sequence[Row], place: HostNodes, placed: Sequence[HostNodes]) -> float:
    """Return the fewest bytes that a host had to send and receive in all timed iterations, by any algorithm."""
    total = sum(len(other.ranks) for other in placed)
    return sum(
        row.point.size * row.iterations * _share(row.operation, place, total) for row in rows if row.ranks == total
    )


def _share(operation: str, place: HostNodes, total: int) -> float:
    """Return the least that a host sends and receives, as a multiple of the operation's size (see `metrics`)."""
    own = len(place.ranks) / total
    if operation in ("send_recv", "bidirectional_send_recv"):
        return 2.0 * sum(rank ^ 1 not in place.ranks for rank in place.ranks)
    return {
        "allreduce": 2.0,  # its part of the sum out, the sum in
        "broadcast": 1.0,
        "reduce": 1.0,
        "allgather": 1.0,  # its own blocks out, the others' in
        "reduce_scatter": 1.0,
        "gather": min(own, 1 - own),
        "scatter": min(own, 1 - own),
        "alltoall": 2.0 * len(place.ranks) * (1 - own),
    }.get(operation, 0.0)


def _shown(count: float) -> str:
    return f"{count / 1e6:,.0f} MB"
