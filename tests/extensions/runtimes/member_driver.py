"""Opens this machine as a node and runs a command there, in a process of its own, which tests may kill.

    python member_driver.py OUTPUT ARGV...

Prints `AGENT_PID FOLDER` before it runs the command.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.extensions.runtimes.local import LocalNodes
from pytest_hetgpu.model.job import Command, Hardware, Node


def main(output: str, *argv: str) -> None:
    member = LocalNodes.open(Node(0, Hardware("here"), "localhost", 1, "n0"), Deployment("t", "run", "me"))
    assert isinstance(member, AgentNode)
    sys.stdout.write(f"{member.link.hello.pid} {member.folder}\n")
    sys.stdout.flush()
    member.run(Command(argv), output=Path(output), timeout=60)


main(*sys.argv[1:])
