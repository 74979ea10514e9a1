"""What the nodes of a cell are, looked at once and held against it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.cluster import facts_cache
from pytest_hetgpu.cluster.cluster import Cluster, ClusterNode
from pytest_hetgpu.cluster.facts_cache import FactsCache
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.runtimes.fake import FakeRuntime
from pytest_hetgpu.model.facts import Environment, found
from pytest_hetgpu.model.job import Command, Hardware, Job, Node, Requirements, Stack
from pytest_hetgpu.planning.prepare import with_facts

STACK = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")


class Looked(FakeRuntime):
    """A node that may be looked at, unless testinfra is `missing`."""

    def __init__(self, missing: bool = False) -> None:
        super().__init__(lambda _: (0, b""))
        self.missing_testinfra = missing

    def host(self) -> Any:
        if self.missing_testinfra:
            raise NotHere("testinfra cannot be imported")
        return self


def cluster(runtime: FakeRuntime, placement: str = "two") -> Cluster:
    nodes = tuple(Node(index, Hardware("cpu"), "localhost", 1, "localhost", STACK) for index in range(2))
    demand = Requirements(2, STACK, "ob1", (), (), "allreduce", facts={"ucx": "9"})
    job = Job("m", "s", "s", {"placement": placement}, nodes, Command(("mpirun",)), 9.0, demand)
    return Cluster(job, tuple(ClusterNode(node, runtime) for node in nodes))


def told(**facts: str) -> Environment:
    return Environment({name: found(value) for name, value in facts.items()})


def test_processes_of_one_machine_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []

    def collect(*asked: object) -> Environment:
        looks.append(asked)
        return told(ucx="1.18.1")

    monkeypatch.setattr(facts_cache, "collect", collect)
    around = FactsCache(tmp_path)
    seen = around.gather(cluster(Looked()))
    around.gather(cluster(Looked(), "other"))
    assert len(looks) == 1
    assert seen[0] is seen[1]
    assert sorted(path.parent.name for path in tmp_path.glob("placements/*/environment.json")) == ["m-other", "m-two"]


def test_without_testinfra_nothing_is_known_and_nothing_is_kept(tmp_path: Path) -> None:
    assert FactsCache(tmp_path).gather(cluster(Looked(missing=True))) == {0: Environment(), 1: Environment()}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("nodes", "facts", "capabilities"),
    [
        ((told(ucx="1.18.1", torch="2.5"), told(ucx="1.18.1")), {"ucx": "9", "torch": None}, set()),
        ((told(openmpi="5.0.7"), told(openmpi="5.0.7")), {"openmpi": "5.0.7"}, set()),
        ((told(openmpi="5.0.7"), told(openmpi="4.1.4")), {"openmpi": None}, set()),
        ((told(**{"large_bar.rocm": "no"}), told(**{"large_bar.rocm": "yes"})), {}, {"no-large-bar", "rocm-large-bar"}),
    ],
)
def test_expectations_may_ask_for_what_all_nodes_share(
    nodes: tuple[Environment, ...], facts: Mapping[str, str | None], capabilities: set[str]
) -> None:
    demand = with_facts(cluster(Looked()).job, dict(enumerate(nodes))).demand
    assert {name: demand.facts.get(name) for name in facts} == facts
    assert demand.capabilities == capabilities


def test_a_node_is_looked_at_by_the_main_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt ends the look at once; what is loaded meanwhile is in another thread."""
    threads: dict[str, threading.Thread] = {}

    def collect(*_: object) -> Environment:
        threads["look"] = threading.current_thread()
        return told(ucx="1.18.1")

    monkeypatch.setattr(facts_cache, "collect", collect)
    meanwhile = lambda: threads.update(meanwhile=threading.current_thread())  # noqa: E731
    FactsCache(tmp_path).gather(cluster(Looked()), meanwhile=meanwhile)
    assert threads["look"] is threading.main_thread()
    assert threads["meanwhile"] is not threading.main_thread()


def test_nodes_that_were_looked_at_need_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_cache, "collect", lambda *_: told(ucx="1.18.1"))
    around = FactsCache(tmp_path)
    around.gather(cluster(Looked()))

    def lease() -> AbstractContextManager[object]:
        raise AssertionError("a lease was taken")

    assert around.gather(cluster(Looked()), lease)[0].text("ucx") == "1.18.1"
