"""Nodes that are simply there and can be reached by ssh: bare metal, virtual machines, a cluster's login."""

from __future__ import annotations

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes.agent.link import CLOSED, Link, boot_command
from pytest_hetgpu.extensions.runtimes.agent.node import Reached
from pytest_hetgpu.extensions.runtimes.base import Gathering, Member, MemberRuntime, key_trouble
from pytest_hetgpu.extensions.runtimes.process.ledger import books
from pytest_hetgpu.extensions.runtimes.process.pipe import ProcessPipe
from pytest_hetgpu.extensions.runtimes.process.ssh import explained, ssh_command
from pytest_hetgpu.model.job import ConnectionInfo, Node

_NOTHING_STARTED = (127, 255)  # no python3 there, or no way there


class Ssh(MemberRuntime):
    """A node is a login on a host. All that is needed there is python3 and, for a job of several nodes, sshd."""

    @classmethod
    def open(cls, node: Node, gathering: Gathering) -> Member:
        """As `MemberRuntime.open`; NotHere without an ssh client here."""
        name = node.name or node.host
        trouble = key_trouble(node.reach.key)
        if trouble:
            raise ProvisionError(name, trouble)
        argv = ssh_command(node.host, node.reach, boot_command())
        ended = books().host(node.host, node.reach)
        try:
            pipe = _SshPipe(node.host, node.reach, argv)
        except OSError as error:
            ended()
            raise ProvisionError(name, f"ssh cannot be started: {error.strerror}") from error
        try:
            link = Link(pipe, name)
        except ProvisionError:
            if pipe.returncode() in _NOTHING_STARTED:
                ended()
            raise
        return Reached(name, link, after=lambda: ended() if link.lost() == CLOSED else None).settled(gathering)


class _SshPipe(ProcessPipe):
    def __init__(self, host: str, reach: ConnectionInfo, argv: tuple[str, ...]) -> None:
        self._host = host
        self._reach = reach
        super().__init__(argv)

    def why_ended(self) -> str:
        code = self.returncode()
        return explained(self._host, self._reach, self.stderr(), code)
