"""Which nodes of a placement are measured with each other: never more pairs than nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_hetgpu.model.job import Job, Node

NodePair = tuple[Node, Node]


def name_of(node: Node) -> str:
    """As reports call a node: `node0`."""
    return f"node{node.index}"


def pairs(job: Job) -> tuple[NodePair, ...]:
    """Neighbours in the ring of a job's nodes, as far as there is a network between them; of equal pairs one.

    The ring is what collectives of large messages use. Two pairs are equal where they are between the same hosts:
    containers of one host have the same kernel between them, whichever they are.
    """
    nodes = job.nodes
    ring: Iterable[NodePair] = zip(nodes, (*nodes[1:], nodes[0]), strict=True)
    found: dict[frozenset[str], NodePair] = {}
    for one, other in ring:
        if one.index != other.index and has_network_between(one, other):
            found.setdefault(frozenset((one.host, other.host)), (one, other))
    return tuple(found.values())


def has_network_between(one: Node, other: Node) -> bool:
    """Whether a network is between two nodes: they are on two hosts, or containers each with a network of its own."""
    return one.host != other.host or (_has_its_own(one) and _has_its_own(other))


def _has_its_own(node: Node) -> bool:
    return node.container is not None and node.container.network == "user"


def rounds(found: Sequence[NodePair]) -> tuple[tuple[NodePair, ...], ...]:
    """Pairs that may be measured side by side, as they share no host; all pairs of a ring in three rounds at most.

    Where they share a host they share its CPU and its adapter, too.
    """
    made: list[tuple[NodePair, ...]] = []
    left = list(found)
    while left:
        busy: set[str] = set()
        now = []
        for pair in left:
            hosts = {node.host for node in pair}
            if not hosts & busy:
                now.append(pair)
                busy |= hosts
        made.append(tuple(now))
        left = [pair for pair in left if pair not in now]
    return tuple(made)
