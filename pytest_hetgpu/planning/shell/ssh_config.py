"""The ssh configuration and known hosts of a job's nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_hetgpu.extensions.runtimes.base import SshServer
from pytest_hetgpu.model.job import Node
from pytest_hetgpu.planning.placement import address

CONFIG, KNOWN_HOSTS, KEY = "ssh_config", "known_hosts", "key"


def session_environment(node: Node) -> dict[str, str]:
    """Return the variables that an ssh session adds to a node: the PATH of its MPI, if the matrix sets a prefix."""
    return {"PATH": f"{node.stack.prefix}/bin"} if node.stack and node.stack.prefix else {}


def ssh_config(folder: str, servers: Iterable[tuple[Node, SshServer]]) -> str:
    """Return the file for `ssh -F`: one entry per node, without settings of the user and without prompts."""
    return "".join(_entry(folder, node, server) for node, server in servers)


def known_hosts(servers: Iterable[tuple[Node, SshServer]]) -> str:
    """Return the host keys of the nodes, by their names in the configuration."""
    return "".join(f"{node.name} {server.host_key}\n" for node, server in servers)


def _entry(folder: str, node: Node, server: SshServer) -> str:
    settings = {
        # The zone of an IPv6 address follows a %, which begins a token in this file.
        "HostName": address(node).replace("%", "%%"),
        "HostKeyAlias": node.name,
        "Port": server.port,
        "User": server.user,
        "IdentityFile": f"{folder}/{KEY}",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "UserKnownHostsFile": f"{folder}/{KNOWN_HOSTS}",
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "PreferredAuthentications": "publickey",
        # Safe enough for keys of one run, available since OpenSSH 6.5, and 75 ms faster than sntrup761.
        "KexAlgorithms": "curve25519-sha256@libssh.org",
        "BatchMode": "yes",
        "ConnectTimeout": 10,
        "ServerAliveInterval": 15,
    }
    lines = "".join(f"  {name} {value}\n" for name, value in settings.items() if value)
    return f"Host {node.name}\n{lines}"
