"""What a node says is not trusted: far ends whose answers are odd, and what comes of them."""

from __future__ import annotations

import os
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.errors import HetgpuError, LostNode, ProvisionError
from pytest_hetgpu.extensions.build_context import reference
from pytest_hetgpu.extensions.runtimes._docker import images
from pytest_hetgpu.extensions.runtimes._docker.engine import engine_of
from pytest_hetgpu.extensions.runtimes._docker.tunnel import tunnel
from pytest_hetgpu.extensions.runtimes.agent.link import Link, Reply, boot_command, checked_folder
from pytest_hetgpu.extensions.runtimes.agent.node import Reached
from pytest_hetgpu.extensions.runtimes.base import Gathering
from pytest_hetgpu.extensions.runtimes.local import LocalNodes
from pytest_hetgpu.extensions.runtimes.process.pipe import ProcessPipe
from pytest_hetgpu.model.job import Command, ConnectionInfo, Hardware, Image, Node
from tests.extensions.runtimes.test_runtime_link import HELLO, MAGIC, agent_module, frame, link, refusal, says

DOOR = {"port": 22, "host_key": "ssh-ed25519 AAAA+/b=", "user": "u"}
USES: tuple[Callable[[Reached], object], ...] = (
    lambda node: node.ask(("true",)),
    lambda node: node.read(["/a"]),
    lambda node: node.absent(["/a"]),
    Reached.interfaces,
    Reached.sweep,
    Reached.door_log,
)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far ends that misbehave do not end by themselves either."""
    monkeypatch.setattr("pytest_hetgpu.extensions.runtimes.process.pipe._PATIENCE", 0.2)
    monkeypatch.setattr("pytest_hetgpu.extensions.runtimes.agent.link._FAREWELL", 0.2)


def answering(monkeypatch: pytest.MonkeyPatch, fields: Mapping[str, Any]) -> Reached:
    """A node that answers whatever is asked with `fields`."""
    monkeypatch.setattr(Link, "request", lambda *_, **__: Reply(fields, b""))
    return Reached("n0", link(*says(MAGIC, frame(HELLO))))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (struct.pack("!II", 1 << 31, 0), "one of 2147483648 and 0 bytes"),
        (struct.pack("!II", 2, 1 << 27) + b"{}", "one of 2 and 134217728 bytes"),
        (struct.pack("!II", 100_000, 0) + b"[" * 100_000, "RecursionError"),
        (frame(["id"]), "TypeError"),
        (frame({"id": []}), "TypeError"),
    ],
)
def test_what_is_no_answer_ends_the_link_at_once(data: bytes, why: str) -> None:
    node = link(*says(MAGIC, frame(HELLO), data[:9], then=f"os.write(1, {data[9:]!r}); signal.pause()"))
    with pytest.raises(LostNode, match="its agent's answers cannot be read") as caught:
        node.request("interfaces")
    assert why in str(caught.value)
    node.close()


@pytest.mark.parametrize("change", [{"pid": "1"}, {"uid": None}, {"subreaper": 1}, {"more": 1}, {"folder": "/a b"}])
def test_an_odd_greeting_is_refused(change: dict[str, object]) -> None:
    said = refusal(*says(MAGIC, frame({**HELLO, **change})))
    assert said.startswith(("n0: its agent's greeting cannot be read", "n0: the node's agent answered with '/a b'"))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("value", [None, 1])
def test_an_answer_that_cannot_be_read_is_a_lost_node(
    use: Callable[[Reached], object], value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("sizes", "exist", "up", "survivors", "lines", "stdout", "returncode") if value else ()
    node = answering(monkeypatch, {**dict.fromkeys(names, value), "failed": value})
    with pytest.raises(LostNode, match="n0: the agent's answer cannot be read"):
        use(node)
    assert node.lost() == "the agent's answer cannot be read"
    node.close()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"port": 0}, "port"),
        ({"port": 65536}, "port"),
        ({"port": "22\nProxyCommand x"}, "port"),
        ({"host_key": "ssh-rsa AAAA"}, "public key"),
        ({"host_key": "ssh-ed25519 AAAA\n* ssh-ed25519 BBBB"}, "public key"),
        ({"host_key": None}, "public key"),
        ({"user": "u\nProxyCommand x"}, "user name"),
        ({"user": "-oProxyCommand=x"}, "user name"),
    ],
)
def test_a_door_that_is_none_goes_into_no_other_node_s_files(
    change: dict[str, object], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = answering(monkeypatch, {**DOOR, **change})
    with pytest.raises(ProvisionError, match=f"n0: the node's agent answered with .*, which is no {what}"):
        node.open_door("key", {})
    node.close()


def test_doors_keys_and_folders_as_they_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    node = answering(monkeypatch, {**DOOR, "user": "a.b@c-d$", "public": "ssh-ed25519 AAAA a comment\n"})
    assert (node.open_door("key", {}).port, node.open_door("key", {}).user) == (22, "a.b@c-d$")
    assert node.key() == "ssh-ed25519 AAAA"
    node.close()
    for folder in ("tmp", "/a b", "/a\n", '/"', "", None):
        with pytest.raises(ProvisionError, match="which is no folder"):
            checked_folder("n0", folder)


def test_a_node_that_does_not_settle_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    opened = answering(monkeypatch, {"folder": "/a\nb"})
    node = Reached("n0", opened.link, after=lambda: said.append("removed"))
    with pytest.raises(ProvisionError, match="which is no folder"):
        node.settled(Gathering("p", "r", "me"))
    assert (said, node.lost()) == (["removed"], "closed")


def test_output_that_comes_slowly_comes_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_hetgpu.extensions.runtimes.agent import link as _link

    source = _link.agent_source()
    changed = source.replace(b"KILL_LIMIT = 10.0", b"KILL_LIMIT = 0.3", 1)
    assert changed != source
    monkeypatch.setattr(_link, "agent_source", lambda: changed)

    class Slow(ProcessPipe):
        def recv(self, size: int) -> bytes:
            time.sleep(0.02)
            return super().recv(min(size, 8192))

    monkeypatch.setattr(_link, "_FAREWELL", 20.0)
    node = Reached("n0", Link(Slow(boot_command(sys.executable)), "n0"))
    result = node.run(Command(("head", "-c", "700000", "/dev/zero")), output=tmp_path / "log", timeout=60)
    assert (result.returncode, (tmp_path / "log").stat().st_size) == (0, 700_000)
    node.close()


def test_a_last_word_that_cannot_be_read_is_a_lost_node(tmp_path: Path) -> None:
    odd = frame({"id": 1, "event": "ended"}) + frame({"id": 1, "returncode": "0", "survivors": 3})
    heard = f"import time; time.sleep(0.5); os.write(1, {odd!r}); signal.pause()"
    node = Reached("n0", link(*says(MAGIC, frame(HELLO), then=heard)))
    result = node.run(Command(("true",)), output=tmp_path / "log", timeout=60)
    assert result.returncode == 255
    assert (tmp_path / "log").read_text() == "hetgpu: node n0 was lost: the agent's answer cannot be read\n"
    node.close()


def test_a_temporary_folder_that_ssh_cannot_name_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "a b"
    odd.mkdir()
    monkeypatch.setenv("TMPDIR", str(odd))
    node = LocalNodes.open(Node(0, Hardware("here"), "localhost", 1, "n0"), Gathering("test", "run", "me"))
    assert not Path(node.folder).is_relative_to(odd)
    node.close()


def test_a_tunnel_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nsleep 1000\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("pytest_hetgpu.extensions.runtimes._docker.tunnel._PATIENCE", 0.3)
    began = time.monotonic()
    with (
        pytest.raises(ProvisionError, match=r"h: no word from a shell on h within 0\.3 s"),
        tunnel("h", ConnectionInfo()),
    ):
        pass
    assert time.monotonic() - began < 5
    assert not [one for one in threading.enumerate() if isinstance(one, threading.Timer) and one.is_alive()]


def test_what_is_wrong_here_with_a_build_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "Dockerfile").write_text("FROM scratch\n")
    image = Image(reference(str(tmp_path / "x"), {}), str(tmp_path / "x"), {})
    engine = engine_of("n0", ConnectionInfo("unix:///nowhere"))
    monkeypatch.setattr(images, "_current", lambda *_: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def said() -> str:
        images.forget(engine, image)
        with pytest.raises(HetgpuError) as caught:
            images.ensure(engine, image, "n0")
        assert type(caught.value) is ProvisionError
        return str(caught.value)

    lock = tmp_path / f"hetgpu-{os.geteuid()}"
    lock.symlink_to(tmp_path)
    assert said() == f"n0: the image {image.reference} cannot be built: {lock}: is not a folder; remove it"
    lock.unlink()
    lock.mkdir()
    lock.chmod(0o777)
    assert "can be written to by others (mode 0777); remove it" in said()
    lock.chmod(0o700)
    (tmp_path / "x" / "Dockerfile").unlink()
    assert "Dockerfile: No such file or directory" in said()
    monkeypatch.setattr(images, "_base", lambda *_: "")
    assert "cannot be built now: " in said()


@pytest.mark.parametrize(("user", "allowed"), [("u", True), ("u@example.org", False)])
def test_a_login_with_a_domain_is_not_taken_for_one_of_a_host(user: str, allowed: bool, tmp_path: Path) -> None:
    door = agent_module("agent_door").Door(str(tmp_path), None)
    door.write("ssh-ed25519 AAAA", [], False, port=22, user=user, pam="no")
    config = (tmp_path / "sshd_config").read_text()
    assert (f"AllowUsers {user}\n" in config, "AllowUsers" in config) == (allowed, allowed)
