"""A node of a run is lost: its container is killed, frozen, cut off from the network, out of memory."""

from __future__ import annotations

import contextlib
import signal

import psutil
import pytest

from tests.faults.conftest import Fault
from tests.faults.harness import AT_NIGHT, GROWING, MEETING, Session, command, containers, meetings

pytestmark = [pytest.mark.real, pytest.mark.beside, pytest.mark.usefixtures("engine")]

# Of a cell whose ranks wait for ever: long enough for its launch on a busy machine.
PATIENT = 8


def over_containers(fault: Fault, *options: str, **hit: str) -> Session:
    """Three cells on two containers, the second of which is hit; it is of this program."""
    program = hit.get("program", MEETING.format(steps=20))
    workloads = {**meetings(3, 0.2), "meet1": command(program, timeout=PATIENT)}
    return fault.at(containers(workloads)).start(*options)


def in_mid_collective(session: Session) -> str:
    """A random moment after the ranks of the second cell have met for the first time; the cell."""
    return session.reaches(2, spread=0.5, output="met once")


def test_a_container_is_killed(fault: Fault) -> None:
    """A node's container is killed."""
    session = over_containers(fault)
    cell = in_mid_collective(session)
    session.site.docked("kill", session.node(fault.chance.choice(("node0", "node1"))))
    fault.checked(session, cell)


@pytest.mark.nightly(reason="a frozen container is noticed after 90 s")
def test_a_container_is_frozen(fault: Fault) -> None:
    """A node's container is frozen: its processes get SIGSTOP."""
    session = over_containers(fault)
    cell = in_mid_collective(session)
    (root,) = session.site.docked("inspect", "-f", "{{.State.Pid}}", session.node("node1"))
    first = psutil.Process(int(root))
    for process in (first, *first.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)
    fault.checked(session, cell)


def test_a_network_is_removed(fault: Fault) -> None:
    """A Docker network is removed under a job, in mid-collective; with `--hetgpu-retries 1`."""
    session = over_containers(fault, "--hetgpu-retries", "1")
    cell = in_mid_collective(session)
    (network,) = session.site.docked("network", "ls", "-q", "--filter", f"label=hetgpu.run={session.run.name}")
    for node in ("node0", "node1"):
        session.site.docked("network", "disconnect", "-f", network, session.node(node))
    session.site.docked("network", "rm", network)
    assert session.end() == 0, session.said()
    outcome = session.judged()["faults", cell]
    assert [(one["kind"], one["key"]) for one in outcome["attempts"]] == [("network_failure", "lost@interface")]
    assert "eth0 of node0 is gone" in outcome["attempts"][0]["why"]
    log = (session.run / outcome["attempts"][0]["log"]).read_text()
    assert "hetgpu: interface eth0 of node1 is gone" in log
    assert outcome["kind"] == "passed"
    fault.checked(session, cell)


def test_a_node_is_cut_off(fault: Fault) -> None:
    """A node is cut off from the network, in mid-collective."""
    session = over_containers(fault)
    cell = in_mid_collective(session)
    (network,) = session.site.docked("network", "ls", "-q", "--filter", f"label=hetgpu.run={session.run.name}")
    session.site.docked("network", "disconnect", "-f", network, session.node("node1"))
    fault.checked(session, cell)
    outcome = session.judged()["faults", cell]
    assert (outcome["kind"], outcome["signature"]["key"]) == ("network_failure", "lost@interface")
    assert "eth0 of node1 is gone" in outcome["why"]
    assert "node0" not in outcome["why"]


def test_out_of_memory(fault: Fault) -> None:
    """A node is out of memory: its container's limit is lowered."""
    session = over_containers(fault, program=GROWING)
    cell = session.reaches(2, spread=0.2, output="met once")
    # Less than is in use cannot be set.
    taken = next(
        limit
        for limit in ("64m", "128m", "256m", "512m")
        if session.site.call(
            "docker", "update", "--memory", limit, "--memory-swap", limit, session.node("node1")
        ).returncode
        == 0
    )
    print(f"limited to {taken}")
    fault.checked(session, cell)


@pytest.mark.parametrize(
    "options", [pytest.param((), id="alone", marks=AT_NIGHT), pytest.param(("-n", "2"), id="workers")]
)
def test_pytest_is_killed_over_containers(fault: Fault, options: tuple[str, ...]) -> None:
    """`kill -9` of pytest over containers."""
    session = fault.at(containers(meetings(4, 0.3))).start(*options)
    session.reaches()
    session.process.kill()
    fault.checked(session)
