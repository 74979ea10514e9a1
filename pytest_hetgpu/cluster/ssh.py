"""Joins nodes by ssh without passwords: a key pair made on the node that starts jobs, and a door for it on the others.

The private key never leaves its node, the others' host keys come from the nodes themselves and are pinned, each door is
an sshd of ours on a free port that takes nothing but this key; all of it is gone with the nodes.
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
class Berth:
    """A node with the one who reaches it."""

    node: Node
    member: RemoteNode

    @property
    def words(self) -> str:
        """`node1 (g4ad on 10.0.0.5)`, as errors name it."""
        return f"{self.node.name} ({self.node.hardware.name} on {self.node.host})"


def join(starter: Berth, others: Sequence[Berth]) -> None:
    """Lets `starter` log in on all others with `ssh -F FOLDER/ssh_config NAME`; ProvisionError names who refuses."""
    if not others:
        return
    public = starter.member.key()
    with ThreadPoolExecutor(max_workers=min(32, len(others))) as pool:
        doors = list(pool.map(lambda berth: berth.member.start_sshd(public, session_environment(berth.node)), others))
        folder = starter.member.folder
        entries = [(berth.node, door) for berth, door in zip(others, doors, strict=True)]
        files = {CONFIG: ssh_config(folder, entries), KNOWN_HOSTS: known_hosts(entries)}
        starter.member.put({name: text.encode() for name, text in files.items()})
        list(pool.map(lambda berth: _try(starter, berth), others))


def _try(starter: Berth, other: Berth) -> None:
    config = f"{starter.member.folder}/{CONFIG}"
    try:
        answer = starter.member.exec(("ssh", "-F", config, other.node.name, "true"), timeout=SLOW)
    except ProvisionError as error:
        why = str(error).removeprefix(f"{error.node}: ")
        raise ProvisionError(other.words, f"{starter.words} cannot try ssh to it: {why}") from None
    if answer.returncode:
        said = " ".join(answer.stderr.decode(errors="replace").split()) or f"exit code {answer.returncode}"
        where = f"{address(other.node)} ({_hint(said)})"
        log = other.member.sshd_log()
        raise ProvisionError(other.words, f"ssh from {starter.words} to {where} failed: {said}", log)


_HINTS: Mapping[str, str] = {
    "refused": "its sshd was listening a moment ago: is a firewall between them?",
    "timed out": "a firewall or security group must let every port through between the nodes",
    "No route": "no route between them: is this address for the other hosts, too?",
    "resolve": "the name is not known there; give an address in the inventory",
    "Host key": "another sshd answered at this address and port",
    "Permission denied": "its sshd does not take the key of this run: see its log",
}


def _hint(said: str) -> str:
    return next((hint for text, hint in _HINTS.items() if text in said), "ssh between the nodes must work")
