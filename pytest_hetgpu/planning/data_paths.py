"""The paths that data of a job takes: inside a host, and between hosts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pytest_hetgpu.extensions.runtimes.lookup import runtime_of
from pytest_hetgpu.model.job import Node
from pytest_hetgpu.model.transport_classes import OFF_HOST, ON_HOST, UNKNOWN, Connection


def paths(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the paths between the ranks of these nodes.

    MPI libraries identify a host by its name and its memory. So a container or a pod counts as a host of its own.
    """
    ranks: Counter[object] = Counter()
    for node in nodes:
        ranks[_place(node)] += node.ranks
    taken = [count for count in ranks.values() if count]
    return (*(ON_HOST,) * any(count > 1 for count in taken), *(OFF_HOST,) * (len(taken) > 1))


def with_paths(connections: Iterable[Connection], nodes: Sequence[Node]) -> tuple[Connection, ...]:
    """Return the connections with the paths that the job itself determines.

    A job with one kind of path determines it, independent of the log. Some libraries take containers of one machine for
    one host, others for two. The path of such connections stays unknown.
    """
    possible = paths(nodes)
    if len(possible) == 1:
        return tuple(dict.fromkeys(one._replace(path=possible[0]) for one in connections))
    if _share(nodes):
        return tuple(dict.fromkeys(one._replace(path=UNKNOWN) for one in connections))
    return tuple(connections)


def _place(node: Node) -> object:
    return node.index if _enclosed(node) else node.host


def _enclosed(node: Node) -> bool:
    return node.container is not None or runtime_of(node.hardware.runtime).encloses


def _share(nodes: Sequence[Node]) -> bool:
    """Return whether containers share a host. Pods are placed only when they run, so they do not count."""
    hosts = Counter(node.host for node in nodes if node.container is not None)
    return any(count > 1 for count in hosts.values())
