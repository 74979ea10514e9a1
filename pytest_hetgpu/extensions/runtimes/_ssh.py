"""A host that is reached by ssh, and the ssh that serves it."""

from __future__ import annotations

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes.agent.link import CLOSED, AgentConnection, boot_command
from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.base import Deployment, RemoteNode, key_trouble
from pytest_hetgpu.extensions.runtimes.process.ledger import tracker
from pytest_hetgpu.extensions.runtimes.process.pipe import ProcessPipe
from pytest_hetgpu.extensions.runtimes.process.ssh import explained, ssh_command
from pytest_hetgpu.model.job import ConnectionInfo, Node

_NOTHING_STARTED = (127, 255)  # python3 is missing there, or ssh could not connect


def opened(node: Node, deployment: Deployment) -> RemoteNode:
    """Return the node; raise NotHere without an ssh client here."""
    name = node.name or node.host
    trouble = key_trouble(node.reach.key)
    if trouble:
        raise ProvisionError(name, trouble)
    argv = ssh_command(node.host, node.reach, boot_command())
    ended = tracker().host(node.host, node.reach)
    try:
        pipe = _SshPipe(node.host, node.reach, argv)
    except OSError as error:
        ended()
        raise ProvisionError(name, f"ssh cannot be started: {error.strerror}") from error
    try:
        link = AgentConnection(pipe, name)
    except ProvisionError:
        if pipe.returncode() in _NOTHING_STARTED:
            ended()
        raise
    return AgentNode(name, link, after=lambda: ended() if link.lost() == CLOSED else None).settled(deployment)


class _SshPipe(ProcessPipe):
    def __init__(self, host: str, reach: ConnectionInfo, argv: tuple[str, ...]) -> None:
        self._host = host
        self._reach = reach
        super().__init__(argv)

    def why_ended(self) -> str:
        code = self.returncode()
        return explained(self._host, self._reach, self.stderr(), code)
