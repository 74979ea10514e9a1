"""A run's keys: their owner's alone while it lasts, whatever the umask, and nowhere afterwards."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_hetgpu.cluster.ssh import NodeHandle, connect_nodes
from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.extensions.runtimes.local import LocalNodes
from pytest_hetgpu.model.job import Hardware, Node

pytestmark = pytest.mark.usefixtures("openssh")


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def member(index: int) -> NodeHandle:
    node = Node(index, Hardware("here"), "127.0.0.1", 1, f"n{index}")
    opened = LocalNodes.open(node, Deployment("test", "run", "me"))
    assert isinstance(opened, AgentNode)
    return NodeHandle(node, opened)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_keys_and_configurations_are_their_owners_alone_and_vanish(umask: int) -> None:
    starter, other = member(0), member(1)
    folders = [Path(one.member.folder) for one in (starter, other)]
    try:
        connect_nodes(starter, [other])
        private = [folders[0] / "key", folders[1] / "host_key"]
        for folder in folders:
            assert mode(folder) == 0o700
            assert folder.stat().st_uid == os.getuid()
        for path in private:
            assert b"PRIVATE KEY" in path.read_bytes()
            assert mode(path) & 0o177 == 0
        for path in (folders[0] / "ssh_config", folders[0] / "known_hosts", folders[1] / "authorized_keys"):
            assert path.read_bytes()
            assert not mode(path) & 0o022 or mode(path.parent) == 0o700
        # The key's one way out would be to another node.
        assert not (folders[1] / "key").exists()
        public = (folders[0] / "key.pub").read_text().split()[1]
        assert public in (folders[1] / "authorized_keys").read_text()
        assert len((folders[1] / "authorized_keys").read_text().splitlines()) == 1
        told = (folders[0] / "ssh_config").read_text()
        assert "StrictHostKeyChecking yes" in told
        assert (folders[1] / "host_key.pub").read_text().split()[1] in (folders[0] / "known_hosts").read_text()
    finally:
        for one in (starter, other):
            one.member.close()
    assert [folder for folder in folders if folder.exists()] == []


def test_each_run_has_a_key_of_its_own() -> None:
    keys = []
    for _ in range(2):
        one = member(0)
        try:
            keys.append(one.member.key())
        finally:
            one.member.close()
    assert keys[0] != keys[1]
