"""What processes of one run tell each other of their nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.errors import LostNode, ProvisionError
from pytest_hetgpu.execution.retry.health import NodeHealth
from pytest_hetgpu.model.job import Command, Hardware, Job, Node, Requirements, Stack
from pytest_hetgpu.model.outcome import Outcome, RunResult
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.journal import Journal

STACK = Stack("openmpi-5", "Open MPI", "5", "", "mpirun", "python3")
REFUSED = ProvisionError("node1 (g4ad on h1)", "ssh to it: connection refused")


def runtime_of(host: str, lent: str) -> str:
    return lent if lent and host.startswith("node") else "ssh"


def job(*hosts: str, lent: str = "") -> Job:
    """On hosts; those that begin with `node` are of the scheduler `lent`, and not known yet."""
    nodes = tuple(
        Node(place, Hardware("g4ad", runtime=runtime_of(host, lent)), host, 1, name=f"node{place}", stack=STACK)
        for place, host in enumerate(hosts)
    )
    demand = Requirements(2, STACK, "ob1", (), (), "allreduce")
    return Job("m", "-".join(hosts), "s", {"placement": "p"}, nodes, Command(("mpirun",)), 9.0, demand)


def test_what_one_worker_met_the_others_know(tmp_path: Path) -> None:
    one, other = (NodeHealth(Journal(tmp_path, name)) for name in ("gw0", "gw1"))
    assert one.not_ready(job("h0", "h1"), REFUSED)
    assert other.why_quarantined(job("h1", "h2")) == ""
    assert not one.not_ready(job("h0", "h1"), REFUSED)
    assert other.why_quarantined(job("h1", "h2")) == (
        "g4ad on h1 is in quarantine: ssh to it: connection refused, 2 times in a row (cell h0-h1)"
    )
    assert other.why_quarantined(job("h0", "h2")) == ""
    unlimited = NodeHealth(Journal(tmp_path, "gw2"), limit=None)
    assert unlimited.why_quarantined(job("h1", "h2")) == ""


def test_a_run_that_is_taken_up_again_tries_all_nodes_again(tmp_path: Path) -> None:
    before = NodeHealth(Journal(tmp_path, "main"))
    for _ in range(2):
        before.not_ready(job("h0", "h1"), REFUSED)
    assert before.why_quarantined(job("h1")) != ""
    assert NodeHealth(Journal(tmp_path, "gw0", 1)).why_quarantined(job("h1")) == ""


def test_nodes_are_tried_until_one_is_given_up(tmp_path: Path) -> None:
    health = NodeHealth(Journal(tmp_path, "main"))
    answers: list[ProvisionError | str] = [REFUSED, "nodes"]
    forgiven: list[int] = []

    def make() -> str:
        answer = answers.pop(0)
        if isinstance(answer, ProvisionError):
            raise answer
        return answer

    assert health.make(job("h0", "h1"), make, lambda: forgiven.append(1)) == "nodes"
    assert forgiven == [1]


def test_an_error_of_no_node_in_particular_is_not_tried_again(tmp_path: Path) -> None:
    health = NodeHealth(Journal(tmp_path, "main"))
    assert not health.not_ready(job("h0", "h1"), ProvisionError("the engine", "no networks left"))
    assert health.why_quarantined(job("h0", "h1")) == ""


def test_a_node_that_is_lost_is_blamed_and_one_that_works_is_not(tmp_path: Path) -> None:
    health = NodeHealth(Journal(tmp_path, "main"))
    mine = job("h0", "h1")
    lost = RunResult((), 255, "", 0.0, 1.0, lost=(f"node node1 (g4ad on h1) was lost: {LostNode('node1', 'gone')}",))
    failed = Outcome(Kind.NETWORK_FAILURE, Verdict.NEW, "gone", stack="Open MPI 5")
    for _ in range(2):
        health.ran(mine, failed, lost)
    health.ran(mine, Outcome(Kind.PASSED, Verdict.OK, stack="Open MPI 5"), replace(lost, lost=()))
    for _ in range(2):
        health.ran(mine, failed, lost)
    assert health.why_quarantined(mine) == ""
    health.ran(mine, failed, lost)
    assert health.why_quarantined(mine).startswith("g4ad on h1 is in quarantine: node node1 (g4ad on h1) was lost: ")
    assert health.why_quarantined(job("h0", "h2")) == ""


@pytest.mark.parametrize("scheduler", ["slurm", "kubernetes"])
def test_what_a_scheduler_chooses_anew_each_time_is_never_given_up(tmp_path: Path, scheduler: str) -> None:
    health = NodeHealth(Journal(tmp_path, "main"))
    planned = job("node0", "node1", lent=scheduler)
    given = replace(planned, nodes=tuple(replace(node, host=f"10.1.0.{node.index}") for node in planned.nodes))
    for _ in range(9):
        assert not health.not_ready(planned, ProvisionError("node1 (g4ad on node1)", "its agent did not come up"))
        gone = RunResult((), 255, "", 0.0, 1.0, lost=("node node1 (g4ad on 10.1.0.1) was lost: gone",))
        health.ran(given, Outcome(Kind.NETWORK_FAILURE, Verdict.NEW, "gone"), gone)
    assert health.why_quarantined(planned) == health.why_quarantined(given) == ""
    assert health.quarantined() == frozenset()


def test_what_a_scheduler_gave_makes_no_other_node_suspect(tmp_path: Path) -> None:
    health = NodeHealth(Journal(tmp_path, "main"))
    health.ran(job("h1", "h2"), Outcome(Kind.PASSED, Verdict.OK, stack="Open MPI 5"), RunResult((), 0, "", 0.0, 1.0))
    for other in ("h3", "h4") * 2:
        mixed = job("node0", "h0", other, lent="kubernetes")
        health.not_ready(mixed, ProvisionError("node0 (g4ad on node0)", "its agent did not come up"))
        gone = RunResult((), 255, "", 0.0, 1.0, lost=("node node0 (g4ad on node0) was lost: gone",))
        health.ran(mixed, Outcome(Kind.NETWORK_FAILURE, Verdict.NEW, "gone"), gone)
    assert health.quarantined() == frozenset()
    assert health.why_quarantined(job("h0")) == ""
