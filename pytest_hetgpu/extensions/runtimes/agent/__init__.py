"""The interface for runtimes of other packages: a node that a command reaches, served by the node agent."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes.base import Deployment, RemoteNode
from pytest_hetgpu.model.job import Node


def reached_by(command: Sequence[str], node: Node, deployment: Deployment) -> RemoteNode:
    """Return the node that `command` reaches (`("podman", "exec", "-i", NAME)`, `("lxc", "exec", NAME, "--")`).

    This function appends `python3` and its arguments. The command must pass stdin and stdout unchanged. The agent and
    its child processes end with its stdin.

    Raises:
        ProvisionError: The command cannot be started, or nothing answers.

    """
    from pytest_hetgpu.extensions.runtimes.agent.link import AgentConnection, boot_command
    from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
    from pytest_hetgpu.extensions.runtimes.process.pipe import ProcessPipe

    name = node.name or node.host
    try:
        pipe = ProcessPipe((*command, *boot_command()))
    except OSError as error:
        raise ProvisionError(name, f"{command[0]} cannot be started: {error.strerror}") from error
    return AgentNode(name, AgentConnection(pipe, name)).settled(deployment)
