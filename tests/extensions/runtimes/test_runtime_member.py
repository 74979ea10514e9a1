"""Files, interfaces and testinfra on a node that an agent holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.model.job import Command
from tests.extensions.runtimes.member_nodes import member, output

__all__ = ["member", "output"]


def test_files_are_put_below_the_folder(member: AgentNode) -> None:
    member.put({"programs/a.py": b"\0\xff", "b": b"", "with space/\u00fc": b"x"})
    folder = Path(member.folder)
    assert (folder / "programs" / "a.py").read_bytes() == b"\0\xff"
    assert (folder / "programs" / "a.py").stat().st_mode & 0o777 == 0o600
    assert (folder / "programs").stat().st_mode & 0o777 == 0o700
    assert (folder / "b").read_bytes() == b""
    assert (folder / "with space" / "\u00fc").read_bytes() == b"x"
    member.put({"b": b"shorter"})
    assert (folder / "b").read_bytes() == b"shorter"


def test_temporary_files_of_commands_lie_in_the_folder(member: AgentNode) -> None:
    assert member.exec(("sh", "-c", "echo $TMPDIR")).stdout.decode().strip() == member.folder


def test_a_folder_for_temporary_files_that_the_job_sets_is_kept(member: AgentNode, output: Path) -> None:
    member.run(Command(("sh", "-c", "echo $TMPDIR"), {"TMPDIR": "/elsewhere"}), output=output, timeout=60.0)
    assert output.read_text() == "/elsewhere\n"


@pytest.mark.parametrize(
    "name", ["../out", "a/../../out", "/tmp/hetgpu-out", "", ".", "..", "a\0b", "link/out", "plain/../b", "file-link"]
)
def test_no_file_leaves_the_folder(member: AgentNode, tmp_path: Path, name: str) -> None:
    (Path(member.folder) / "link").symlink_to(tmp_path)
    (Path(member.folder) / "file-link").symlink_to(tmp_path / "out")
    with pytest.raises(ProvisionError, match=r"does not lie below the folder|Too many levels of symbolic links"):
        member.put({name: b"x"})
    assert list(tmp_path.iterdir()) == []


def test_files_are_read_as_far_as_they_can_be(member: AgentNode, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    (tmp_path / "empty").write_bytes(b"")
    os.mkfifo(tmp_path / "fifo")
    names = ["large", "missing", "empty", "fifo", "."]
    read = member.read([str(tmp_path / name) for name in names] + ["/proc/version", "a\0b"])
    assert [None if content is None else len(content) for content in read.values()][:5] == [65536, None, 0, None, None]
    assert read["/proc/version"] == Path("/proc/version").read_bytes()
    assert read["a\0b"] is None


def test_absent_paths_and_interfaces(member: AgentNode, tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    asked = ("/no/such/kfd", str(tmp_path), "/dev/null", str(tmp_path / "dangling"))
    assert member.absent(asked) == ("/no/such/kfd", str(tmp_path / "dangling"))
    assert member.interfaces()[0] == "lo"


def test_the_host_is_a_testinfra_host(member: AgentNode, tmp_path: Path, testinfra: None) -> None:
    host = member.host()
    (tmp_path / "it's \u00fc").write_text("inside")
    assert host.file("/etc/os-release").content_string == Path("/etc/os-release").read_text()
    assert host.file(str(tmp_path / "it's \u00fc")).content_string == "inside"
    assert host.run("echo %s; exit 3", "a b").rc == 3
    assert not host.exists("no-such-program")
    assert repr(host) == "<testinfra.host.Host hetgpu://n0>"
