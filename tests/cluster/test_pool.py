"""Placements that stay for the next cells."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.cluster import inspect
from pytest_hetgpu.cluster import pool as pool_module
from pytest_hetgpu.cluster.pool import ClusterPool, identity, rank_programs
from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.extensions.runtimes.base import (
    CommandResult,
    Deployment,
    NodeProvider,
    OnTimeout,
    RemoteNode,
    SshServer,
    Walltime,
    ignore,
)
from pytest_hetgpu.model.facts import Environment
from pytest_hetgpu.model.job import Command, Hardware, Job, Node, Requirements, Stack
from pytest_hetgpu.model.outcome import RunResult

STACK = Stack("openmpi-5", "Open MPI", "5", "", "mpirun", "python3")


class FakeMember(RemoteNode):
    """A node that says yes to everything; `refuses` is the ssh command's complaint."""

    def __init__(self, node: Node, refuses: bytes = b"") -> None:
        self.node, self.refuses = node, refuses
        self.folder, self.uid = f"/tmp/f{node.index}", 0
        self.closed = 0
        self.gone: str | None = None
        self.files: dict[str, bytes] = {}

    def run(self, command: Command, *, output: Path, timeout: float, overdue: OnTimeout = ignore) -> RunResult:
        raise AssertionError

    def absent(self, paths: Sequence[str]) -> tuple[str, ...]:
        return ()

    def interfaces(self) -> tuple[str, ...]:
        return ("lo",)

    def host(self) -> Any:
        return self

    def key(self) -> str:
        return "ssh-ed25519 PUBLIC"

    def exec(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0) -> CommandResult:
        return CommandResult(255 if self.refuses else 0, b"", self.refuses)

    def put(self, files: Mapping[str, bytes]) -> None:
        self.files.update(files)

    def read(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        return dict.fromkeys(paths)

    def start_sshd(self, authorized_key: str, environment: Mapping[str, str]) -> SshServer:
        return SshServer(4000 + self.node.index, f"ssh-ed25519 HOST{self.node.index}", "root")

    def sshd_log(self) -> tuple[str, ...]:
        return ("Connection closed",)

    def sweep(self) -> tuple[str, ...]:
        return ()

    def lost(self) -> str | None:
        return self.gone

    def close(self) -> None:
        self.closed += 1


class Site:
    """Opens fake nodes; `broken` are the indices of those that cannot be made."""

    def __init__(self) -> None:
        self.opened: list[FakeMember] = []
        self.broken: dict[int, Exception] = {}
        self.refuses = b""
        self.shut = 0
        self.lock = threading.Lock()

    def runtime(self) -> type[NodeProvider]:
        site = self

        class Fake(NodeProvider):
            @classmethod
            def open(cls, node: Node, deployment: Deployment) -> RemoteNode:
                assert deployment.token
                if node.index in site.broken:
                    raise site.broken[node.index]
                with site.lock:
                    site.opened.append(FakeMember(node, site.refuses))
                    return site.opened[-1]

            @classmethod
            def shut(cls) -> None:
                site.shut += 1

        return Fake


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    found = Site()

    monkeypatch.setattr(pool_module, "runtime_of", lambda _: found.runtime())
    monkeypatch.setattr(inspect, "collect", lambda *_: Environment())
    return found


def job(placement: str = "two", nodes: int = 2, ranks: int = 1) -> Job:
    hardware = Hardware("box", runtime="docker")
    members = tuple(Node(i, hardware, "localhost", ranks, name=f"node{i}", stack=STACK) for i in range(nodes))
    demand = Requirements(2, STACK, "ob1", (), (), "allreduce")
    return Job("m", "s", "s", {"placement": placement}, members, Command(("mpirun",)), 9.0, demand)


def test_the_next_cell_of_a_placement_has_the_same_nodes(site: Site) -> None:
    pool = ClusterPool("run")
    first = pool.acquire(job())
    assert pool.acquire(replace(job(ranks=4), scenario="other")) is first
    assert len(site.opened) == 2
    assert pool.acquire(job("three", 3)) is not first
    pool.close()
    assert [member.closed for member in site.opened] == [1] * 5
    assert site.shut == 1


def test_the_starter_can_log_in_on_all_others_and_has_the_programs(site: Site) -> None:
    ClusterPool("run").acquire(job(nodes=3))
    starter = next(member for member in site.opened if member.node.index == 0)
    assert starter.files["known_hosts"] == b"node1 ssh-ed25519 HOST1\nnode2 ssh-ed25519 HOST2\n"
    assert b"Host node1\n" in starter.files["ssh_config"]
    assert all("programs/allreduce.py" in member.files for member in site.opened)


def test_a_placement_that_was_given_back_is_made_anew(site: Site) -> None:
    pool = ClusterPool("run")
    first = pool.acquire(job())
    pool.taint(job())
    pool.evict()
    assert [member.closed for member in site.opened] == [1, 1]
    assert pool.acquire(job()) is not first


def test_few_placements_stay_and_the_least_used_one_is_closed(site: Site) -> None:
    pool = ClusterPool("run")
    names = [f"p{place}" for place in range(pool_module.MAX_PLACEMENTS)]
    for name in names:
        pool.acquire(job(name, 1))
    pool.acquire(job(names[0], 1))
    pool.acquire(job("one-more", 1))
    gone = [place for place, member in enumerate(site.opened) if member.closed]
    assert gone == [1]


@pytest.mark.parametrize("error", [ProvisionError("node1", "no sshd"), NotHere("no engine")])
def test_what_cannot_be_made_is_tried_twice_and_leaves_nothing(site: Site, error: Exception) -> None:
    site.broken[1] = error
    pool = ClusterPool("run")
    for _ in range(4):
        with pytest.raises(type(error), match=str(error)):
            pool.acquire(job())
    assert [member.closed for member in site.opened] == [1, 1]


def test_what_failed_once_may_work_the_next_time(site: Site) -> None:
    site.broken[1] = ProvisionError("node1", "no answer")
    pool = ClusterPool("run")
    with pytest.raises(ProvisionError):
        pool.acquire(job())
    site.broken.clear()
    assert pool.acquire(job()).handles


def test_nodes_that_got_lost_since_are_made_anew(site: Site) -> None:
    pool = ClusterPool("run")
    first = pool.acquire(job())
    site.opened[0].gone = "the container is gone"
    assert pool.acquire(job()) is not first
    assert [member.closed for member in site.opened] == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("ttl", "age", "stays"), [(100, 90.0, True), (100, 92.0, False), (5, 4.0, True)], ids=["time", "none", "too-short"]
)
def test_a_loan_that_would_end_before_the_cell_are_made_anew(
    site: Site, monkeypatch: pytest.MonkeyPatch, ttl: int, age: float, stays: bool
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(pool_module, "monotonic", lambda: clock[0])
    monkeypatch.setattr(FakeMember, "walltime", Walltime(1000.0, ttl))
    cell, pool = job(), ClusterPool("run")
    # It may have waited for its pods for hours.
    clock[0] -= 5000.0
    first = pool.acquire(cell)
    clock[0] += 5000.0 + age
    assert (pool.acquire(cell) is first) is stays
    assert [member.closed for member in site.opened] == ([0, 0] if stays else [1, 1, 0, 0])


def test_a_surprise_leaves_nothing_either(site: Site) -> None:
    site.broken[0] = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        ClusterPool("run").acquire(job())
    assert all(member.closed for member in site.opened)


def test_who_cannot_be_reached_by_ssh_is_named_with_the_reason(site: Site) -> None:
    site.refuses = b"ssh: connect to host node1 port 4001: Connection timed out\n"
    with pytest.raises(ProvisionError) as caught:
        ClusterPool("run").acquire(job())
    assert str(caught.value) == (
        "node1 (box on localhost): ssh from node0 (box on localhost) to 127.0.0.1 (a firewall or security group must "
        "let every port through between the nodes) failed: ssh: connect to host node1 port 4001: Connection timed out"
    )
    assert caught.value.log == ("Connection closed",)
    assert all(member.closed for member in site.opened)


def by_srun() -> Job:
    return replace(job(), needs_ssh=False)


def test_nodes_are_connected_when_the_first_job_needs_ssh(site: Site) -> None:
    pool = ClusterPool("run")
    pool.acquire(by_srun())
    starter = next(member for member in site.opened if member.node.index == 0)
    assert "ssh_config" not in starter.files
    pool.acquire(job())
    assert "ssh_config" in starter.files
    starter.files.clear()
    pool.acquire(by_srun())
    pool.acquire(job())
    assert "ssh_config" not in starter.files
    assert len(site.opened) == 2


@pytest.mark.parametrize("first", [job, by_srun])
def test_nodes_that_refuse_ssh_run_the_jobs_that_do_without(site: Site, first: Callable[[], Job]) -> None:
    site.refuses = b"Permission denied"
    pool = ClusterPool("run")
    if first is by_srun:
        pool.acquire(by_srun())
    for _ in range(3):
        with pytest.raises(ProvisionError, match="Permission denied"):
            pool.acquire(job())
    kept = pool.acquire(by_srun())
    assert pool.acquire(by_srun()) is kept
    pool.close()
    assert all(member.closed == 1 for member in site.opened)


def test_nodes_are_looked_at_without_testinfra_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(self: FakeMember) -> Any:
        raise NotHere("testinfra cannot be imported")

    asked: list[str] = []

    def collect(host: inspect.HostLike, *_: object) -> Environment:
        asked.append(str(host.run("python3 -c %s %s", "PROGRAM", "{}").rc))
        return Environment()

    monkeypatch.setattr(FakeMember, "host", without)
    monkeypatch.setattr(inspect, "collect", collect)
    assert ClusterPool("run").acquire(job()).environments == (Environment(), Environment())
    assert asked == ["0", "0"]


def test_what_fails_to_close_does_not_keep_the_rest(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ClusterPool("run")
    pool.acquire(job())
    monkeypatch.setattr(Deployment, "close", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pool.close()
    assert [member.closed for member in site.opened] == [1, 1]
    assert site.shut == 1


def test_jobs_are_alike_whatever_their_ranks_and_cell() -> None:
    assert identity(job()) == identity(replace(job(ranks=3), scenario="x", label="y"))
    assert identity(job()) != identity(job("other"))


def test_ranks_get_their_programs_and_nothing_else() -> None:
    names = set(rank_programs())
    assert {"programs/harness.py", "programs/allreduce.py"} <= names
    assert not [name for name in names if "agent" in name or "gather_facts" in name or "__init__" in name]
