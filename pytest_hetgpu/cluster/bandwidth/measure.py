"""Measurement of the bandwidth between the nodes of a placement, once per run. All effects of this package are here."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pytest_hetgpu.cluster.bandwidth import protocol
from pytest_hetgpu.cluster.bandwidth.line_rates import line_rate
from pytest_hetgpu.cluster.bandwidth.pairs import NodePair, name_of, pairs, rounds
from pytest_hetgpu.cluster.bandwidth.upper_bound import by_pairs, by_rate
from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.cluster.leases.hold import lease_hosts
from pytest_hetgpu.errors import HetgpuError, ProvisionError
from pytest_hetgpu.extensions.runtimes.base import RemoteNode
from pytest_hetgpu.model.bandwidth import LinkMeasurement, LinkReport
from pytest_hetgpu.model.facts import Environment
from pytest_hetgpu.model.job import Job, Node
from pytest_hetgpu.model.outcome import LinkBandwidth
from pytest_hetgpu.store import environment as files
from pytest_hetgpu.store.journal import Journal

T = TypeVar("T")

TRIES = 2
"""Number of measurements if a node was lost meanwhile. Other errors would repeat."""
AT_ONCE = 32


class LinkBandwidths:
    """The cached link bandwidths of placements in one process.

    `run` is the run's folder, `seconds` the duration of each measurement.
    """

    def __init__(self, run: Path, journal: Journal, seconds: float) -> None:
        self.run = run
        self.journal = journal
        self.seconds = seconds
        self._known: dict[tuple[str, str], LinkBandwidth] = {}
        self._tries: dict[tuple[str, str], int] = {}

    def of(self, cluster: Cluster) -> LinkBandwidth:
        """Return the bandwidth between a cluster's nodes. The first caller measures it, with the hosts leased."""
        job = cluster.job
        placement = job.matrix, job.axes["placement"]
        if placement not in self._known:
            with lease_hosts(job, self.journal.waiting):
                found = self._stored(placement) or self._measure(cluster)
            lost = any(member.lost() for member in _members(cluster).values())
            self._tries[placement] = self._tries.get(placement, 0) + 1
            if not lost or self._tries[placement] >= TRIES:
                self._known[placement] = found
            return found
        return self._known[placement]

    def _stored(self, placement: tuple[str, str]) -> LinkBandwidth | None:
        """Return the result of another process of this run. Other nodes on the same hosts do not change it."""
        report = files.read_link(self.run, "-".join(placement))
        return report.limit if report and report.limit.gbs is not None else None

    def _measure(self, cluster: Cluster) -> LinkBandwidth:
        job = cluster.job
        report = measure(job, _members(cluster), _environments(cluster), self.seconds)
        files.write_link(self.run, f"{job.matrix}-{job.axes['placement']}", report)
        self.journal.bandwidth_measured(job, report)
        return report.limit


def measure(job: Job, members: Mapping[int, RemoteNode], seen: Mapping[int, Environment], seconds: float) -> LinkReport:
    """Measure the bandwidth between the nodes of a job. Errors of nodes are in the report.

    Members and facts are by node index.
    """
    began = time.monotonic()
    rates = [line_rate(node, seen.get(node.index, Environment())) for node in job.nodes]
    known = tuple(one for one in rates if one)
    limit = by_rate(job, known)
    if limit:
        return LinkReport(limit, rated=known)
    moved: list[LinkMeasurement] = []
    for side_by_side in rounds(pairs(job)):
        moved += _in_parallel(side_by_side, members, seconds)
    return LinkReport(by_pairs(moved), tuple(moved), known, time.monotonic() - began)


def _in_parallel(two: Sequence[NodePair], members: Mapping[int, RemoteNode], seconds: float) -> list[LinkMeasurement]:
    """Measure pairs that share no host, in parallel."""
    if len(two) == 1:
        return [measure_pair(two[0], members, seconds)]
    pool = ThreadPoolExecutor(max_workers=min(AT_ONCE, len(two)))
    try:
        return list(pool.map(lambda one: measure_pair(one, members, seconds), two))
    finally:
        # An interrupt does not wait for programs that end by themselves.
        pool.shutdown(wait=False, cancel_futures=True)


def measure_pair(two: NodePair, members: Mapping[int, RemoteNode], seconds: float) -> LinkMeasurement:
    """Measure between two nodes. On an error the result holds the reason, and both nodes are swept."""
    first, second = two
    token = secrets.token_hex(16)
    try:
        listens = protocol.serve_request(second, token, seconds)
        served = _request(second, members, listens, protocol.parse_endpoint)
        connects = protocol.measure_request(first, token, seconds, served)
        found = protocol.link_measurement(two, served, _request(first, members, connects, protocol.parse_result))
    except HetgpuError as error:
        found = LinkMeasurement((name_of(first), name_of(second)), why=" ".join(str(error).split()))
    if found.why:
        for node in two:
            with suppress(HetgpuError):
                members[node.index].sweep()
    return found


def _request(
    node: Node, members: Mapping[int, RemoteNode], request: Mapping[str, Any], read: Callable[[bytes], T]
) -> T:
    """Run the program on a node and return its parsed answer.

    Raises the member's errors, and ProvisionError for an unreadable answer.
    """
    member = members[node.index]
    argv = ("python3", f"{member.folder}/programs/tcp_probe.py")
    answer = member.exec(argv, stdin=json.dumps(request).encode(), timeout=request["limit"] + protocol.START)
    if answer.returncode:
        last = answer.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ProvisionError(name_of(node), f"the pump failed there ({last or f'exit code {answer.returncode}'})")
    try:
        return read(answer.stdout)
    except protocol.UnreadableAnswer as error:
        raise ProvisionError(name_of(node), str(error)) from None


def _members(cluster: Cluster) -> dict[int, RemoteNode]:
    return {one.node.index: one.runtime for one in cluster.nodes if isinstance(one.runtime, RemoteNode)}


def _environments(cluster: Cluster) -> dict[int, Environment]:
    return {one.node.index: one.environment for one in cluster.nodes if one.environment}
