"""Connect nodes by ssh without passwords. The node that starts jobs has a key pair, the others accept that key.

The private key never leaves its node. The host keys of the others come from those nodes and are pinned. Each of them
runs an sshd of this run on a free port, which accepts only this key. All of it is removed with the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes.base import RemoteNode
from pytest_hetgpu.model.job import Node
from pytest_hetgpu.planning.placement import address
from pytest_hetgpu.planning.shell.ssh_config import CONFIG, KNOWN_HOSTS, known_hosts, session_environment, ssh_config

SLOW = 20.0


@dataclass(frozen=True)
class NodeHandle:
    """A node with its connection."""

    node: Node
    member: RemoteNode

    @property
    def description(self) -> str:
        """The node as errors name it: `node1 (g4ad on 10.0.0.5)`."""
        return f"{self.node.name} ({self.node.hardware.name} on {self.node.host})"


def connect_nodes(first: NodeHandle, others: Sequence[NodeHandle]) -> None:
    """Let `first` log in to all others with `ssh -F FOLDER/ssh_config NAME`.

    Raise ProvisionError with the name of a node that refuses.
    """
    if not others:
        return
    public = first.member.key()
    with ThreadPoolExecutor(max_workers=min(32, len(others))) as pool:
        servers = list(
            pool.map(lambda handle: handle.member.start_sshd(public, session_environment(handle.node)), others)
        )
        folder = first.member.folder
        entries = [(handle.node, server) for handle, server in zip(others, servers, strict=True)]
        files = {CONFIG: ssh_config(folder, entries), KNOWN_HOSTS: known_hosts(entries)}
        first.member.put({name: text.encode() for name, text in files.items()})
        list(pool.map(lambda handle: _try(first, handle), others))


def _try(first: NodeHandle, other: NodeHandle) -> None:
    config = f"{first.member.folder}/{CONFIG}"
    try:
        answer = first.member.exec(("ssh", "-F", config, other.node.name, "true"), timeout=SLOW)
    except ProvisionError as error:
        why = str(error).removeprefix(f"{error.node}: ")
        raise ProvisionError(other.description, f"{first.description} cannot try ssh to it: {why}") from None
    if answer.returncode:
        error_text = " ".join(answer.stderr.decode(errors="replace").split()) or f"exit code {answer.returncode}"
        where = f"{address(other.node)} ({_hint(error_text)})"
        log = other.member.sshd_log()
        raise ProvisionError(other.description, f"ssh from {first.description} to {where} failed: {error_text}", log)


_HINTS: Mapping[str, str] = {
    "refused": "its sshd was listening a moment ago: is a firewall between them?",
    "timed out": "a firewall or security group must let every port through between the nodes",
    "No route": "no route between them: is this address for the other hosts, too?",
    "resolve": "the name is not known there; give an address in the inventory",
    "Host key": "another sshd answered at this address and port",
    "Permission denied": "its sshd does not take the key of this run: see its log",
}


def _hint(error_text: str) -> str:
    return next((hint for text, hint in _HINTS.items() if text in error_text), "ssh between the nodes must work")
