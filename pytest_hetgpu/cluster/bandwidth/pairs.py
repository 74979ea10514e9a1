"""Pairs of nodes to measure: never more pairs than nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_hetgpu.model.job import Job, Node

NodePair = tuple[Node, Node]


def name_of(node: Node) -> str:
    """Return a node's name in reports: `node0`."""
    return f"node{node.index}"


def pairs(job: Job) -> tuple[NodePair, ...]:
    """Return neighbours in the ring of a job's nodes that have a network between them, without equal pairs.

    Collectives of large messages use the ring. Pairs between the same hosts are equal, as containers of one host share
    its kernel.
    """
    nodes = job.nodes
    ring: Iterable[NodePair] = zip(nodes, (*nodes[1:], nodes[0]), strict=True)
    found: dict[frozenset[str], NodePair] = {}
    for one, other in ring:
        if one.index != other.index and has_network_between(one, other):
            found.setdefault(frozenset((one.host, other.host)), (one, other))
    return tuple(found.values())


def has_network_between(one: Node, other: Node) -> bool:
    """Return whether a network connects two nodes: two hosts, or two containers on networks of their own."""
    return one.host != other.host or (_has_its_own(one) and _has_its_own(other))


def _has_its_own(node: Node) -> bool:
    return node.container is not None and node.container.network == "user"


def rounds(found: Sequence[NodePair]) -> tuple[tuple[NodePair, ...], ...]:
    """Group pairs into rounds that share no host; a ring needs three rounds at most.

    Pairs that share a host share its CPU and its adapter, too.
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
