"""The kernel's counts of what it killed for want of memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_hetgpu.cluster.cluster import Cluster, ClusterNode
from pytest_hetgpu.cluster.oom_kills import MACHINE, OWN, count, describe, places
from pytest_hetgpu.extensions.runtimes.fake import FakeRuntime
from pytest_hetgpu.model.job import Hardware, Node
from tests.analysis.judges.judge_cases import job

V1 = b"9:name=systemd:/\n4:memory:/docker/ab\n0::/\n"


def test_where_a_control_groups_count_may_be() -> None:
    assert places(b"0::/user.slice/s.scope\n") == (
        "/sys/fs/cgroup/user.slice/s.scope/memory.events",
        "/sys/fs/cgroup/memory.events",
        MACHINE,
    )
    assert places(V1)[:2] == (
        "/sys/fs/cgroup/memory/docker/ab/memory.oom_control",
        "/sys/fs/cgroup/memory/memory.oom_control",
    )
    assert places(b"0::/../../elsewhere\nnonsense")[0] == "/sys/fs/cgroup/memory.events"
    assert places(None) == (MACHINE,)


def test_the_first_file_that_counts() -> None:
    files = {
        "/a": None,
        "/b": b"oom_kill_disable 0\nunder_oom 0\n",
        "/c": b"low 0\noom 3\noom_kill 2\n",
        "/d": b"oom_kill 9\n",
    }
    assert count(files) == ("/c", 2)
    assert count({"/a": None}) is None


def test_only_a_count_that_rose_is_told() -> None:
    assert describe("n", ("/c", 2), ("/c", 2)) == ""
    assert describe("n", None, ("/c", 2)) == ""
    assert describe("n", ("/c", 2), (MACHINE, 9)) == ""
    assert describe("node1", ("/c", 2), ("/c", 3)) == (
        "hetgpu: out of memory on node1: the kernel's OOM killer ended 1 process of its control group (oom_kill in /c)"
    )
    assert "2 processes of this machine" in describe("n", (MACHINE, 0), (MACHINE, 2))


GROUP = "/sys/fs/cgroup/memory/docker/ab/memory.oom_control"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({OWN: V1, GROUP: b"oom_kill 2\n", MACHINE: b"oom_kill 9\n"}, (GROUP, 2)),
        ({OWN: V1, MACHINE: b"oom_kill 9\n"}, (MACHINE, 9)),
        ({MACHINE: b"oom_kill 9\n"}, (MACHINE, 9)),
        ({}, None),
    ],
)
def test_the_machines_long_file_is_read_where_no_group_counts(
    files: dict[str, bytes], found: tuple[str, int] | None
) -> None:
    asked: list[str] = []

    class Reading(FakeRuntime):
        def read(self, paths: Sequence[str]) -> dict[str, bytes | None]:
            asked.extend(paths)
            return {path: files.get(path) for path in paths}

    runtime = Reading(lambda _: (0, b""))
    kills = Cluster(job(), (ClusterNode(Node(0, Hardware("cpu"), "localhost", 2), runtime),)).oom_kills()
    assert next(iter(kills.values()), None) == found
    assert (MACHINE in asked) == (found is None or found[0] == MACHINE)
