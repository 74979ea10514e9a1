"""The scheduler as xdist sees it: workers come, go and die."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("xdist.plugin")

from pytest_hetgpu.session.xdist.waiting import Task
from pytest_hetgpu.session.xdist.workers import HostScheduling


class Worker:
    """What the scheduler sends to a worker."""

    shutting_down = False

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="gw")
        self.sent: list[int] = []
        self.last = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.last = self.shutting_down = True


class Config:
    def __init__(self, workers: int) -> None:
        self.option = self
        self.tx = ["popen"] * workers

    def getoption(self, name: str) -> None:
        return None

    def getvalue(self, name: str) -> Any:
        return getattr(self, name, None)


def tasks(collection: Sequence[str]) -> list[Task]:
    return [Task(index, frozenset({nodeid.partition("@")[2]})) for index, nodeid in enumerate(collection)]


def scheduling(collection: list[str], workers: int) -> tuple[HostScheduling, list[Worker]]:
    made = HostScheduling(Config(workers), None, tasks)
    nodes = [Worker() for _ in range(workers)]
    for node in nodes:
        made.add_node(node)
        made.add_node_collection(node, collection)
    assert made.collection_is_completed
    made.schedule()
    return made, nodes


def through(made: HostScheduling, node: Worker) -> None:
    """A worker runs what it may."""
    while len(node.sent) > (0 if node.last else 1):
        made.mark_test_complete(node, node.sent.pop(0))


def test_it_ends_when_every_worker_has_been_told_its_last_test() -> None:
    made, (one, other) = scheduling(["a@x", "b@x", "c@y", "d@y"], 2)
    while one.sent or other.sent:
        through(made, one)
        through(made, other)
    for node in (one, other):
        assert made.remove_node(node) is None
    assert made.tests_finished, "xdist waits for ever, or says that no worker is left"


def test_a_worker_that_dies_gives_its_test_and_another_runs_the_rest() -> None:
    made, (one, other) = scheduling(["a@x", "b@x", "c@y", "d@y"], 2)
    assert made.remove_node(one) == "a@x"
    assert not made.tests_finished
    further = Worker()
    made.add_node(further)
    made.add_node_collection(further, ["a@x", "b@x", "c@y", "d@y"])
    made.schedule()
    done = 0
    while other.sent or further.sent:
        for node in (other, further):
            while len(node.sent) > (0 if node.last else 1):
                made.mark_test_complete(node, node.sent.pop(0))
                done += 1
    assert done == 3
    assert made.tests_finished


def test_a_worker_that_dies_before_it_begins_costs_nothing() -> None:
    made, (one, other) = scheduling(["a@x", "b@x"], 2)
    assert (one.sent, other.sent) == ([0, 1], [])
    assert made.remove_node(other) is None


def test_tests_of_different_collections_are_not_run() -> None:
    made = HostScheduling(Config(2), None, tasks)
    said: list[str] = []
    made.config.hook = type("Hook", (), {"pytest_collectreport": lambda self, report: said.append(str(report))})()
    for collection in (["a@x"], ["b@x"]):
        node = Worker()
        made.add_node(node)
        made.add_node_collection(node, collection)
    made.schedule()
    assert said
    assert not made.has_pending


def test_tests_on_a_node_that_was_given_up_wait_for_nobody() -> None:
    given_up: set[str] = set()
    collection = ["a@x", "b@y", "c@x", "d@x", "e@y"]

    def named(collection: Sequence[str]) -> list[Task]:
        return [replace(task, nodes=task.hosts) for task in tasks(collection)]

    made = HostScheduling(Config(2), None, named, lambda: given_up)
    one, other = Worker(), Worker()
    for node in (one, other):
        made.add_node(node)
        made.add_node_collection(node, collection)
    made.schedule()
    assert (one.sent[0], other.sent[0]) == (0, 1)
    # What is on x ends at once now, though the first test there has not ended.
    given_up.add("x")
    while other.sent:
        through(made, other)
    assert one.sent[0] == 0
    assert other.last


def test_after_the_first_failure_workers_run_what_they_have_and_no_more() -> None:
    """`-x`: xdist tells all workers to end, and then takes a test that one should still have for a crash."""
    made, (one, other) = scheduling([f"{name}@{host}" for host in "xy" for name in "abcd"], 2)
    for node in (one, other):
        node.shutdown()
    ran = 0
    for node in (one, other):
        while node.sent:
            made.mark_test_complete(node, node.sent.pop(0))
            ran += 1
    assert ran == 4, "each had one that ran and one behind it"
    assert [made.remove_node(node) for node in (one, other)] == [None, None]


def test_a_worker_that_dies_at_its_last_test_after_a_failure_is_a_crash_there() -> None:
    made, (one, other) = scheduling(["a@x", "b@x", "c@y", "d@y"], 2)
    for node in (one, other):
        node.shutdown()
    for _ in range(2):
        made.mark_test_complete(one, one.sent.pop(0))
    made.mark_test_complete(other, other.sent.pop(0))
    assert made.has_pending
    assert made.remove_node(other) == made.collection[other.sent[0]]
    assert made.remove_node(one) is None


def test_nothing_is_sent_to_an_idle_worker_that_was_told_to_end() -> None:
    made, (one, other) = scheduling(["a@x", "b@x", "c@x"], 2)
    assert other.sent == []
    other.shutdown()
    assert made.remove_node(one) == "a@x"
    assert other.sent == []
    further = Worker()
    made.add_node(further)
    made.add_node_collection(further, ["a@x", "b@x", "c@x"])
    made.schedule()
    through(made, further)
    assert made.tests_finished
