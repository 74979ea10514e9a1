"""The upper bound of a placement, computed from measurements between its nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_hetgpu.cluster.bandwidth.pairs import name_of
from pytest_hetgpu.model.bandwidth import Flow, LineRate, LinkMeasurement
from pytest_hetgpu.model.bandwidth_text import percent
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.outcome import LinkBandwidth

_BITS = 8
_BUSY = 0.9
"""Share of a core, or of all cores, from which on the CPU may have limited the transfer."""

NOTHING_BETWEEN = "its nodes share one network: nothing is between them that could limit"


def by_rate(job: Job, rated: Sequence[LineRate]) -> LinkBandwidth | None:
    """Return the rate of the slowest adapter on fabrics that bypass the kernel; None if a rate is not known.

    TCP bandwidth is no bound on such fabrics.
    """
    names = {name_of(node) for node in job.nodes}
    slowest = min(rated, key=lambda one: one.gbps, default=None)
    if not job.demand.rdma or slowest is None or names - {one.node for one in rated}:
        return None
    return LinkBandwidth(slowest.gbps / _BITS, f"{slowest.source} on {slowest.node}")


def by_pairs(pairs: Sequence[LinkMeasurement]) -> LinkBandwidth:
    """Return the bandwidth of the slowest pair in its slower direction, with its best number of connections.

    A ring of all nodes, and a message between two, are as fast as the slowest link on their path. If a pair was not
    measured, it may be the slowest, and there is no bound.
    """
    if not pairs:
        return LinkBandwidth(why=NOTHING_BETWEEN)
    unknown = next((pair for pair in pairs if pair.why), None)
    if unknown:
        return LinkBandwidth(why=unknown.why)
    slowest, pair = min(((flow, pair) for pair in pairs for flow in _ways(pair)), key=lambda found: found[0].median)
    if slowest.median <= 0:
        return LinkBandwidth(why=f"no data came from {slowest.sender} to {slowest.receiver} in time")
    tool = f"{pair.tool}, {slowest.streams} stream{'s' * (slowest.streams > 1)}"
    between = (slowest.sender, slowest.receiver)
    return LinkBandwidth(slowest.median, tool, between, pair.rtt, tuple(_caveats(slowest, pair)))


def _ways(pair: LinkMeasurement) -> Iterator[Flow]:
    """Yield the best flow of each direction."""
    for sender in dict.fromkeys(flow.sender for flow in pair.flows):
        yield max((flow for flow in pair.flows if flow.sender == sender), key=lambda flow: flow.median)


def _caveats(flow: Flow, pair: LinkMeasurement) -> Iterator[str]:
    """Yield reasons to doubt a number."""
    if pair.loopback:
        yield "over loopback"
    if flow.core >= _BUSY:
        yield f"a stream took {percent(flow.core)} of a core"
    if flow.machine >= _BUSY:
        yield f"{percent(flow.machine)} of all cores were busy"
