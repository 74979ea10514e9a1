"""The sshd that a node opens for a job: for one key alone, on a port of its own, gone with the node."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.base import Deployment, SshServer
from pytest_hetgpu.extensions.runtimes.local import LocalNodes
from pytest_hetgpu.model.job import Command, Hardware, Node
from tests.extensions.runtimes.loopback import keygen

pytestmark = pytest.mark.usefixtures("openssh")

NODE = Node(0, Hardware("here"), "localhost", 1, "n0")


@pytest.fixture
def member() -> Iterator[AgentNode]:
    opened = open_node()
    yield opened
    opened.close()


def open_node() -> AgentNode:
    member = LocalNodes.open(NODE, Deployment("test", "run", "me"))
    assert isinstance(member, AgentNode)
    return member


class Visitor:
    """Who comes in by ssh with a private key, host keys pinned."""

    def __init__(self, folder: Path) -> None:
        self.public = keygen(folder / "visitor")
        self.folder = folder

    def visit(self, door: SshServer, *words: str) -> subprocess.CompletedProcess[str]:
        known = self.folder / "known_hosts"
        known.write_text(f"[127.0.0.1]:{door.port} {door.host_key}\n")
        options = ("BatchMode=yes", "IdentitiesOnly=yes", f"UserKnownHostsFile={known}", "StrictHostKeyChecking=yes")
        argv = ["ssh", "-F", "none", "-p", str(door.port), "-l", door.user, "-i", str(self.folder / "visitor")]
        argv += [word for option in options for word in ("-o", option)]
        return subprocess.run([*argv, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)

    def environment(self, door: SshServer) -> dict[str, str]:
        """What sshd starts the login shell with, before a .bashrc changes it."""
        said = self.visit(door, "127.0.0.1", "cat /proc/$$/environ; true")
        assert said.returncode == 0, said.stderr
        return dict(pair.split("=", 1) for pair in said.stdout.split("\0") if pair)


@pytest.fixture
def visitor(tmp_path: Path) -> Visitor:
    return Visitor(tmp_path)


def test_the_right_key_comes_in_and_finds_the_environment(member: AgentNode, visitor: Visitor) -> None:
    environment = {
        "LD_LIBRARY_PATH": "/opt/a b:/opt/c",
        "HETGPU_ODD": "x \"y\" \\ $HOME 'z' # u\u00fc",
        "PATH": "/odd:/bin",
    }
    door = member.start_sshd(visitor.public, environment)
    assert door.host_key.startswith("ssh-ed25519 ")
    found = visitor.environment(door)
    assert found.pop("PATH") == f"{environment.pop('PATH')}{os.pathsep}{os.environ['PATH']}"
    assert environment.items() <= found.items()


def test_without_more_a_visitor_has_the_nodes_own_path(member: AgentNode, visitor: Visitor) -> None:
    door = member.start_sshd(visitor.public, {})
    assert visitor.environment(door)["PATH"] == os.environ["PATH"]


def test_an_old_sshd_sets_variables_another_way(
    openssh: Path, visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "bin" / "sshd"
    old.parent.mkdir()
    old.write_text(
        "#!/bin/sh\n"
        'if grep -q SetEnv "$4"; then echo "$4: line 9: Bad configuration option: SetEnv" >&2; exit 255; fi\n'
        f'exec {openssh} "$@"\n'
    )
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}{os.pathsep}{os.environ['PATH']}")
    member = open_node()
    door = member.start_sshd(visitor.public, {"HETGPU_ODD": 'x "y" $HOME', "LD_LIBRARY_PATH": "/a:/b"})
    said = visitor.visit(door, "127.0.0.1", 'echo "$HETGPU_ODD" "$LD_LIBRARY_PATH"')
    member.close()
    assert said.stdout == 'x "y" $HOME /a:/b\n'


def test_nobody_else_comes_in(member: AgentNode, visitor: Visitor, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    door = member.start_sshd(visitor.public, {})
    said = Visitor(other).visit(door, "127.0.0.1", "true")
    assert said.returncode == 255
    assert "Permission denied (publickey)" in said.stderr
    by_password = visitor.visit(
        door,
        "-o",
        "PubkeyAuthentication=no",
        "-o",
        "BatchMode=no",
        "-o",
        "NumberOfPasswordPrompts=0",
        "127.0.0.1",
        "true",
    )
    assert "Permission denied (publickey)" in by_password.stderr
    stranger = visitor.visit(SshServer(door.port, door.host_key, "nobody"), "127.0.0.1", "true")
    assert "Permission denied (publickey)" in stranger.stderr
    assert any("User nobody from 127.0.0.1 not allowed" in line for line in member.sshd_log())


def test_the_door_leads_nowhere_else(member: AgentNode, visitor: Visitor) -> None:
    door = member.start_sshd(visitor.public, {})
    forward = visitor.visit(door, "-W", "127.0.0.1:22", "127.0.0.1")
    assert forward.returncode != 0
    assert "administratively prohibited" in forward.stderr


def test_a_node_visits_with_its_own_key(member: AgentNode, tmp_path: Path) -> None:
    public = member.key()
    assert public == member.key()
    door = member.start_sshd(public, {})
    member.put({"known_hosts": f"[127.0.0.1]:{door.port} {door.host_key}\n".encode()})
    command = (
        "ssh",
        "-F",
        "none",
        "-o",
        f"UserKnownHostsFile={member.folder}/known_hosts",
        "-i",
        f"{member.folder}/key",
    )
    hello = ("-p", str(door.port), f"{door.user}@127.0.0.1", "echo", "$SSH_CONNECTION")
    result = member.run(Command((*command, *hello)), output=tmp_path / "log", timeout=60)
    assert result.returncode == 0
    assert (tmp_path / "log").read_text().split()[::2] == ["127.0.0.1", "127.0.0.1"]
    assert result.survivors == ()


def test_what_visitors_leave_is_swept_and_the_door_stays(member: AgentNode, visitor: Visitor) -> None:
    door = member.start_sshd(visitor.public, {})
    left = "sh -c 'trap \"\" TERM HUP; setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!'"
    said = visitor.visit(door, "127.0.0.1", left)
    assert said.returncode == 0
    swept = member.sweep()
    assert [name.partition(" ")[0] for name in swept] == ["sleep"]
    assert not psutil.pid_exists(int(swept[0].rpartition("(")[2].rstrip(")")))
    assert visitor.visit(door, "127.0.0.1", "true").returncode == 0
    assert member.sweep() == ()


def test_a_visitor_who_stays_is_shown_out(member: AgentNode, visitor: Visitor, tmp_path: Path) -> None:
    door = member.start_sshd(visitor.public, {})
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{door.port} {door.host_key}\n")
    argv = [
        "ssh",
        "-F",
        "none",
        "-o",
        f"UserKnownHostsFile={known}",
        "-i",
        str(tmp_path / "visitor"),
        "-p",
        str(door.port),
    ]
    argv += [f"{door.user}@127.0.0.1", f"echo in > {fifo}; exec sleep 1000"]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
        assert fifo.read_text() == "in\n"
        assert [name.partition(" ")[0] for name in member.sweep()] == ["sleep"]
        assert client.wait(60) != 0


def test_the_door_closes_with_the_node(visitor: Visitor) -> None:
    member = open_node()
    door = member.start_sshd(visitor.public, {})
    sshd = [one for one in psutil.Process(member.link.hello.pid).children() if one.name() == "sshd"]
    assert len(sshd) == 1
    member.close()
    assert not psutil.pid_exists(sshd[0].pid)
    assert "Connection refused" in visitor.visit(door, "127.0.0.1", "true").stderr


def test_a_second_door_takes_the_place_of_the_first(member: AgentNode, visitor: Visitor, tmp_path: Path) -> None:
    first = member.start_sshd(visitor.public, {})
    other = tmp_path / "other"
    other.mkdir()
    second_visitor = Visitor(other)
    second = member.start_sshd(second_visitor.public, {})
    assert "Connection refused" in visitor.visit(first, "127.0.0.1", "true").stderr
    assert visitor.visit(second, "127.0.0.1", "true").returncode == 255
    assert second_visitor.visit(second, "127.0.0.1", "true").returncode == 0
    assert first.host_key == second.host_key


def refusal(visitor: Visitor, environment: dict[str, str] | None = None) -> str:
    member = open_node()
    try:
        with pytest.raises(ProvisionError) as caught:
            member.start_sshd(visitor.public, environment or {})
        return str(caught.value)
    finally:
        member.close()


def test_what_sshd_complains_of_is_the_error(visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin" / "sshd"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho Privilege separation user sshd does not exist >&2; exit 255\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    assert refusal(visitor) == "n0: sshd does not start: Privilege separation user sshd does not exist"
    assert "sshd cannot set A: its value holds a line break" in refusal(visitor, {"A": "x\nPort 22"})


def test_without_sshd_the_door_says_what_to_install(
    visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_hetgpu.extensions.runtimes.agent import link

    monkeypatch.setattr(link, "agent_source", without_system_folders(link.agent_source()))
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refusal(visitor)
    assert said.startswith("n0: no sshd in PATH, /usr/sbin or /usr/local/sbin: install openssh-server")


def without_system_folders(source: bytes) -> object:
    """An agent that looks for sshd in PATH alone, as it would on a machine where there is none elsewhere."""
    changed = source.replace(b'ELSEWHERE = ("/usr/sbin", ', b'ELSEWHERE = ("/no/sbin", ', 1)
    for folder in (b"/usr/local/sbin", b"/sbin", b"/usr/bin", b"/usr/local/bin"):
        changed = changed.replace(b'"%s"' % folder, b'"/no"', 1)
    assert changed != source
    return lambda: changed


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="only root can become somebody else")
def test_an_ordinary_user_can_have_a_door_too(visitor: Visitor, tmp_path: Path) -> None:
    from pytest_hetgpu.extensions.runtimes.agent.link import AgentConnection, boot_command
    from pytest_hetgpu.extensions.runtimes.process.pipe import ProcessPipe

    nobody = ("setpriv", "--reuid=1", "--regid=1", "--clear-groups", "env", "-u", "TMPDIR", "/usr/bin/python3")
    argv = (*nobody[:-1], *boot_command("/usr/bin/python3"))
    member = AgentNode("n0", AgentConnection(ProcessPipe(argv), "n0"))
    try:
        with pytest.raises(ProvisionError, match=r"user \w+ cannot come in by ssh: their shell in /etc/passwd is /"):
            member.start_sshd(visitor.public, {})
    finally:
        member.close()
