"""Files that hold the values of variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from pytest_hetgpu.cluster.private_files import file_here, file_on, files_on
from pytest_hetgpu.errors import LostNode, ProvisionError
from pytest_hetgpu.extensions.runtimes.base import RemoteNode


class Written:
    """A node that notes the files it has."""

    folder = "/tmp/hetgpu-1"

    def __init__(self, fails: str = "") -> None:
        self.has: dict[str, bytes] = {}
        self.fails = fails

    def put(self, files: Mapping[str, bytes]) -> None:
        if self.fails == "put":
            raise ProvisionError("node1", "no space")
        self.has |= files

    def exec(self, argv: Sequence[str]) -> None:
        if self.fails == "exec":
            raise LostNode("node1", "it is gone")
        assert argv[:2] == ("rm", "-f")
        for path in argv[2:]:
            self.has.pop(path.removeprefix("/tmp/hetgpu-1/"), None)


def nodes(*made: Written) -> list[RemoteNode]:
    return [cast(RemoteNode, one) for one in made]


def test_a_file_here_is_private_and_goes() -> None:
    with file_here(b"{}") as path:
        assert Path(path).read_bytes() == b"{}"
        assert Path(path).stat().st_mode & 0o777 == 0o600
    assert not Path(path).exists()


def test_files_on_nodes_go_at_the_end_whatever_happens() -> None:
    one, other = Written(), Written()

    def fail() -> None:
        with files_on(nodes(one, other), {"variables-0": b"{}"}):
            assert one.has == other.has == {"variables-0": b"{}"}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert one.has == other.has == {}
    (only,) = nodes(one)
    with file_on(only, b"{}") as path:
        assert path == "/tmp/hetgpu-1/inspected"
        assert one.has == {"inspected": b"{}"}
    assert one.has == {}


def test_a_node_that_cannot_write_leaves_nothing_on_the_others() -> None:
    one = Written()
    with pytest.raises(ProvisionError, match="no space"), files_on(nodes(one, Written("put")), {"a": b""}):
        raise AssertionError("it is not reached")
    assert one.has == {}


def test_a_node_that_is_lost_at_the_end_hides_nothing() -> None:
    with files_on(nodes(Written("exec")), {"a": b""}):
        pass


def test_without_files_no_node_is_asked() -> None:
    with files_on(nodes(Written("put")), {}):
        pass
