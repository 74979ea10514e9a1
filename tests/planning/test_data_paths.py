"""Paths of a job, and their effect on connections whose path a log leaves open."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.runtimes.pods.request import Pods
from pytest_hetgpu.model.job import ContainerOptions, Hardware, Node
from pytest_hetgpu.model.transport_classes import Connection
from pytest_hetgpu.planning.data_paths import paths, with_paths

INSIDE = ContainerOptions()


def nodes(*layout: tuple[str, int], container: ContainerOptions | None = None, pods: Pods | None = None) -> list[Node]:
    kind = Hardware("cpu", runtime="kubernetes" if pods else "local", settings=pods)
    return [Node(place, kind, host, ranks, container=container) for place, (host, ranks) in enumerate(layout)]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (nodes(("localhost", 1), ("localhost", 1)), "on-host"),
        (nodes(("localhost", 4)), "on-host"),
        (nodes(("a", 1), ("b", 1)), "off-host"),
        (nodes(("a", 2), ("b", 1)), "on-host off-host"),
        (nodes(("a", 1), ("b", 1), ("a", 1)), "on-host off-host"),
        (nodes(("localhost", 1), ("localhost", 1), container=INSIDE), "off-host"),
        (nodes(("localhost", 2), ("localhost", 1), container=INSIDE), "on-host off-host"),
        (nodes(("node0", 8), ("node1", 8), pods=Pods()), "on-host off-host"),
        (nodes(("a", 1)), ""),
        (nodes(("a", 0), ("b", 2)), "on-host"),
    ],
)
def test_paths_between_ranks(found: list[Node], wanted: str) -> None:
    assert " ".join(paths(found)) == wanted


def test_a_job_of_one_path_settles_what_the_log_leaves_open() -> None:
    seen = [Connection("unknown", ("ucx/tcp",)), Connection("on-host", ("ucx/tcp",))]
    assert with_paths(seen, nodes(("a", 1), ("b", 1))) == (Connection("off-host", ("ucx/tcp",)),)
    assert with_paths(seen, nodes(("a", 2), ("b", 1))) == tuple(seen)


def test_of_containers_that_share_a_host_the_log_settles_nothing() -> None:
    seen = [Connection("on-host", ("ucx/tcp",)), Connection("off-host", ("ucx/tcp",))]
    shared = nodes(("h", 2), ("h", 2), container=INSIDE)
    assert with_paths(seen, shared) == (Connection("unknown", ("ucx/tcp",)),)
