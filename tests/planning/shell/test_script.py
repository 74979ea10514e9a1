"""What is pasted to make a placement's nodes by hand."""

from __future__ import annotations

from dataclasses import replace

from pytest_hetgpu.model.job import (
    Command,
    ConnectionInfo,
    ContainerOptions,
    Hardware,
    Image,
    Job,
    Node,
    Requirements,
    Stack,
)
from pytest_hetgpu.planning.shell.script import preparation

STACK = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")
DEMAND = Requirements(2, STACK, "ob1", ("tcp",), (), "allreduce")
BOX = Node(
    0,
    Hardware("a", runtime="docker"),
    "192.0.2.11",
    1,
    "node0",
    reach=ConnectionInfo("ssh://ubuntu@203.0.113.11", key="/keys/my aws.pem"),
    image=Image("debian:12"),
    container=ContainerOptions(network="host"),
)


def lines(*nodes: Node) -> list[str]:
    job = Job("demo", "s", "s", {"placement": "two"}, nodes, Command(("mpirun",)), 1.0, DEMAND)
    return list(preparation(job, "/p"))


def test_a_key_that_docker_cannot_be_given_is_said_first_and_once() -> None:
    other = replace(BOX, index=2, name="node2", reach=ConnectionInfo("ssh://203.0.113.12", "u", 22, "/keys/b"))
    told = lines(BOX, replace(BOX, index=1, name="node1"), other)
    assert told[:2] == [
        "# docker -H ssh://ubuntu@203.0.113.11 uses your ssh: ssh-add '/keys/my aws.pem' first",
        "# docker -H ssh://u@203.0.113.12:22 uses your ssh: ssh-add /keys/b first",
    ]
    assert not [line for line in told[2:] if line.startswith("#")]


def test_without_a_key_or_an_engine_over_ssh_nothing_is_said() -> None:
    here = replace(BOX, reach=ConnectionInfo("unix:///run/d.sock", key="/k"))
    plain = replace(BOX, index=1, name="node1", reach=ConnectionInfo("ssh://203.0.113.11"))
    host = replace(BOX, index=2, name="node2", container=None, image=None, hardware=Hardware("b", runtime="ssh"))
    assert not [line for line in lines(here, plain, host) if line.startswith("#")]


def test_a_container_lets_its_own_user_in_a_host_the_one_who_logs_in() -> None:
    other = replace(BOX, index=1, name="node1", reach=ConnectionInfo("ssh://h", "ubuntu"))
    assert "  User root\n" in "\n".join(lines(BOX, other))
    unprivileged = replace(other, container=ContainerOptions(network="host", user="1000:1000"))
    assert "  User 1000\n" in "\n".join(lines(BOX, unprivileged))
    host = replace(BOX, index=2, name="node2", container=None, image=None, hardware=Hardware("b", runtime="ssh"))
    assert "  User " not in "\n".join(lines(BOX, replace(host, reach=ConnectionInfo())))
    assert "  User me\n" in "\n".join(lines(BOX, replace(host, reach=ConnectionInfo(user="me"))))
