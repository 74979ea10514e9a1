"""A node that is this machine, under an agent of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.extensions.runtimes.local import LocalNodes
from pytest_hetgpu.model.job import Hardware, Node

NODE = Node(0, Hardware("here"), "localhost", 1, "n0")


def open_node() -> AgentNode:
    member = LocalNodes.open(NODE, Deployment("test", "run", "me"))
    assert isinstance(member, AgentNode)
    return member


@pytest.fixture
def member() -> Iterator[AgentNode]:
    opened = open_node()
    yield opened
    opened.close()
    assert not Path(opened.folder).exists()
    assert not psutil.pid_exists(opened.link.hello.pid)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output.log"
