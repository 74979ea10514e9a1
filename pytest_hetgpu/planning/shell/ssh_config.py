"""The ssh configuration and known hosts of a job's nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_hetgpu.extensions.runtimes.base import SshServer
from pytest_hetgpu.model.job import Node
from pytest_hetgpu.planning.placement import address

CONFIG, KNOWN_HOSTS, KEY = "ssh_config", "known_hosts", "key"


def session_environment(node: Node) -> dict[str, str]:
    """What a session on the node gets beyond its own environment: where its MPI is, if the matrix says so."""
    return {"PATH": f"{node.stack.prefix}/bin"} if node.stack and node.stack.prefix else {}


def ssh_config(folder: str, doors: Iterable[tuple[Node, SshServer]]) -> str:
    """The file for `ssh -F`: one entry a node, nothing of the user's, no question ever asked."""
    return "".join(_entry(folder, node, door) for node, door in doors)


def known_hosts(doors: Iterable[tuple[Node, SshServer]]) -> str:
    """The host keys as the nodes showed them, by the names that the configuration gives them."""
    return "".join(f"{node.name} {door.host_key}\n" for node, door in doors)


def _entry(folder: str, node: Node, door: SshServer) -> str:
    settings = {
        # A zone of IPv6 stands behind a %, which begins a token there.
        "HostName": address(node).replace("%", "%%"),
        "HostKeyAlias": node.name,
        "Port": door.port,
        "User": door.user,
        "IdentityFile": f"{folder}/{KEY}",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "UserKnownHostsFile": f"{folder}/{KNOWN_HOSTS}",
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "PreferredAuthentications": "publickey",
        # As safe as any that lives for one run, known since OpenSSH 6.5, and 75 ms faster than sntrup761.
        "KexAlgorithms": "curve25519-sha256@libssh.org",
        "BatchMode": "yes",
        "ConnectTimeout": 10,
        "ServerAliveInterval": 15,
    }
    lines = "".join(f"  {name} {value}\n" for name, value in settings.items() if value)
    return f"Host {node.name}\n{lines}"
