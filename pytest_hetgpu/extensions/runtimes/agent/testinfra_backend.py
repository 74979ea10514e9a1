"""testinfra over an agent: the node runs its commands. Only a request for a host imports this module."""

from __future__ import annotations

from typing import Any

from testinfra.backend.base import BaseBackend, CommandResult
from testinfra.host import Host

from pytest_hetgpu.extensions.runtimes.base import RemoteNode

_PATIENCE = 120.0  # seconds for one command of testinfra


class AgentBackend(BaseBackend):  # type: ignore[misc]
    """A testinfra backend that runs commands with the node's /bin/sh."""

    NAME = "hetgpu"

    def __init__(self, member: RemoteNode, name: str, **options: Any) -> None:
        self._member = member
        super().__init__(name, **options)

    def run(self, command: str, *args: str, **kwargs: Any) -> CommandResult:
        """Run a command as the testinfra backends do; raise LostNode or ProvisionError if the node does not answer."""
        line = self.encode(self.get_command(command, *args))
        answer = self._member.exec(("/bin/sh", "-c", line.decode(errors="surrogateescape")), timeout=_PATIENCE)
        return self.result(answer.returncode, line, answer.stdout, answer.stderr)


def host_of(member: RemoteNode, name: str) -> Host:
    """Return the testinfra host that `member` is, called `name`."""
    backend = AgentBackend(member, name)
    host = Host(backend)
    backend.set_host(host)
    return host
