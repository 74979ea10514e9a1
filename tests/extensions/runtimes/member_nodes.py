"""A node that is this machine, under an agent of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pytest_hetgpu.extensions.runtimes.agent.node import Reached
from pytest_hetgpu.extensions.runtimes.base import Gathering
from pytest_hetgpu.extensions.runtimes.local import LocalNodes
from pytest_hetgpu.model.job import Hardware, Node

NODE = Node(0, Hardware("here"), "localhost", 1, "n0")


def open_node() -> Reached:
    member = LocalNodes.open(NODE, Gathering("test", "run", "me"))
    assert isinstance(member, Reached)
    return member


@pytest.fixture
def member() -> Iterator[Reached]:
    opened = open_node()
    yield opened
    opened.close()
    assert not Path(opened.folder).exists()
    assert not psutil.pid_exists(opened.link.hello.pid)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output.log"
