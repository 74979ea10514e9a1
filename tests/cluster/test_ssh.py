"""How nodes get to each other by ssh."""

from __future__ import annotations

from pytest_hetgpu.extensions.runtimes.base import SshServer
from pytest_hetgpu.model.job import ContainerOptions, Hardware, Node, Stack
from pytest_hetgpu.planning.placement import address
from pytest_hetgpu.planning.shell.ssh_config import known_hosts, session_environment, ssh_config

DOOR = SshServer(40123, "ssh-ed25519 AAAA", "root")


def node(index: int, host: str = "192.0.2.7", network: str = "host") -> Node:
    container = ContainerOptions(network=network)
    return Node(index, Hardware("g4ad"), host, 1, name=f"node{index}", container=container)


def test_the_configuration_asks_nothing_and_trusts_only_the_pinned_key() -> None:
    text = ssh_config("/tmp/x", [(node(1), DOOR)])
    assert text.startswith("Host node1\n  HostName 192.0.2.7\n  HostKeyAlias node1\n  Port 40123\n  User root\n")
    for line in (
        "IdentityFile /tmp/x/key",
        "IdentitiesOnly yes",
        "IdentityAgent none",
        "UserKnownHostsFile /tmp/x/known_hosts",
        "StrictHostKeyChecking yes",
        "BatchMode yes",
    ):
        assert f"  {line}\n" in text
    assert known_hosts([(node(1), DOOR), (node(2), DOOR)]) == "node1 ssh-ed25519 AAAA\nnode2 ssh-ed25519 AAAA\n"


def test_a_node_is_reached_by_its_name_only_on_a_network_of_its_own() -> None:
    assert address(node(1, network="user")) == "node1"
    assert address(node(1)) == "192.0.2.7"
    assert address(node(1, host="localhost")) == "127.0.0.1"


def test_an_address_of_ipv6_stands_without_brackets_and_its_zone_is_no_token() -> None:
    assert "  HostName fe80::1%%eth0\n" in ssh_config("/tmp/x", [(node(1, host="[fe80::1%eth0]"), DOOR)])


def test_sessions_find_the_mpi_where_the_matrix_says() -> None:
    assert session_environment(node(1)) == {}
    stacked = Node(1, Hardware("g4ad"), "h", 1, stack=Stack("openmpi-5", "Open MPI", "5", "/opt/mpi", "m", "p"))
    assert session_environment(stacked) == {"PATH": "/opt/mpi/bin"}
