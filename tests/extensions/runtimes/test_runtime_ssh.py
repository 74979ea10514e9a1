"""Hosts that are reached by ssh, and tunnels to their engines: a real ssh, a real sshd on loopback."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

import pytest_hetgpu
from pytest_hetgpu.errors import LostNode, NotHere, ProvisionError
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.runtimes._docker.tunnel import tunnel
from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.base import Deployment, NodeProvider, key_trouble
from pytest_hetgpu.extensions.runtimes.process.kernel import still_running
from pytest_hetgpu.extensions.runtimes.process.ssh import explained
from pytest_hetgpu.extensions.runtimes.ssh import Ssh
from pytest_hetgpu.model.job import Command, ConnectionInfo, Hardware, Node
from tests.extensions.runtimes.loopback import Loopback, free_port, keygen

PATIENCE = 60.0


def open_node(reach: ConnectionInfo, host: str = "127.0.0.1") -> AgentNode:
    member = Ssh.open(Node(0, Hardware("there"), host, 1, "n0", reach=reach), Deployment("test", "run", "me"))
    assert isinstance(member, AgentNode)
    return member


def children() -> list[psutil.Process]:
    return psutil.Process().children()


def test_it_is_found_by_its_name() -> None:
    assert find("runtimes", "ssh", NodeProvider) is Ssh  # type: ignore[type-abstract]


def test_a_host_runs_commands_and_is_left_as_it_was(loopback: Loopback, tmp_path: Path) -> None:
    before = {child.pid for child in children()}
    member = open_node(loopback.reach)
    result = member.run(Command(("echo", "a  b; $HOME")), output=tmp_path / "log", timeout=PATIENCE)
    assert (result.returncode, (tmp_path / "log").read_text()) == (0, "a  b; $HOME\n")
    assert member.exec(("id", "-un")).stdout.decode().strip() == loopback.reach.user
    member.close()
    assert not Path(member.folder).exists()
    assert not psutil.pid_exists(member.link.hello.pid)
    assert {child.pid for child in children()} <= before


def test_a_connection_that_breaks_off_is_a_lost_node(loopback: Loopback, tmp_path: Path) -> None:
    before = {child.pid for child in children()}
    member = open_node(loopback.reach)
    ssh = [child for child in children() if child.pid not in before and "ssh" in child.name()]
    client = next(process for process in ssh if "-T" in process.cmdline())
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with ThreadPoolExecutor(1) as other:
        script = f"echo begun; echo $$ > {fifo}; exec sleep 1000"
        running = other.submit(member.run, Command(("sh", "-c", script)), output=tmp_path / "log", timeout=PATIENCE)
        sleeper = int(fifo.read_text())
        client.kill()
        result = running.result()
    assert result.returncode == 255
    assert (tmp_path / "log").read_text().splitlines()[-1].startswith("hetgpu: node n0 was lost: ssh to 127.0.0.1")
    assert not still_running([sleeper], PATIENCE)
    with pytest.raises(LostNode):
        member.sweep()
    member.close()


def refusal(reach: ConnectionInfo, host: str = "127.0.0.1") -> str:
    """What is said of a host that cannot be opened; nothing stays behind."""
    before = {child.pid for child in children()}
    with pytest.raises(ProvisionError) as caught:
        open_node(reach, host)
    assert {child.pid for child in children()} <= before
    return str(caught.value)


def test_a_name_that_does_not_resolve(loopback: Loopback) -> None:
    assert "n0: the name no-such-host.invalid cannot be resolved" in refusal(loopback.reach, "no-such-host.invalid")


def test_a_port_where_nobody_listens(loopback: Loopback) -> None:
    port = free_port()
    said = refusal(dataclasses.replace(loopback.reach, port=port))
    assert f"n0: nothing listens on 127.0.0.1, port {port}: no sshd there, or another port" in said
    assert "Connection refused" in said


def test_a_wrong_key_and_a_wrong_user(loopback: Loopback, tmp_path: Path) -> None:
    keygen(tmp_path / "other")
    said = refusal(dataclasses.replace(loopback.reach, key=str(tmp_path / "other")))
    assert f"does not let us in as {loopback.reach.user}: wrong user, or a key" in said
    assert f"`ssh -p {loopback.reach.port} -i {tmp_path}/other {loopback.reach.user}@127.0.0.1 true`" in said
    assert "does not let us in as nobody" in refusal(dataclasses.replace(loopback.reach, user="nobody"))


def test_a_key_that_is_not_there_or_readable_by_all(loopback: Loopback, tmp_path: Path) -> None:
    missing = refusal(dataclasses.replace(loopback.reach, key=str(tmp_path / "missing")))
    assert missing == f"n0: key {tmp_path}/missing of the inventory: no such file"
    folder = refusal(dataclasses.replace(loopback.reach, key=str(tmp_path)))
    assert folder == f"n0: key {tmp_path} of the inventory: is a directory"
    os.mkfifo(tmp_path / "pipe")
    pipe = refusal(dataclasses.replace(loopback.reach, key=str(tmp_path / "pipe")))
    assert pipe == f"n0: key {tmp_path}/pipe of the inventory: is not a file"
    assert loopback.reach.key is not None
    shutil.copy(loopback.reach.key, tmp_path / "open")
    (tmp_path / "open").chmod(0o644)
    reach = dataclasses.replace(loopback.reach, key=str(tmp_path / "open"))
    said = f"key {tmp_path}/open of the inventory: others may read it, so ssh does not use it: chmod 600"
    assert refusal(reach) == f"n0: {said}"
    with pytest.raises(ProvisionError, match=re.escape(said)), tunnel("127.0.0.1", reach):
        pass


def test_a_key_of_the_home_is_named_as_it_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert key_trouble(str(tmp_path / ".ssh" / "aws.pem")) == "key ~/.ssh/aws.pem of the inventory: no such file"
    (tmp_path / "id.pub").write_text("ssh-ed25519 AAAA")
    (tmp_path / "id.pub").chmod(0o644)
    assert key_trouble(str(tmp_path / "id.pub")) == key_trouble(None) == ""


def test_host_keys_are_never_taken_on_trust(loopback: Loopback, tmp_path: Path) -> None:
    loopback.known_hosts.write_text("")
    assert "the host key of 127.0.0.1, port" in (unknown := refusal(loopback.reach))
    assert "is not known yet: log in once with `ssh -p" in unknown
    other = keygen(tmp_path / "other")
    loopback.known_hosts.write_text(f"[127.0.0.1]:{loopback.reach.port} {other}")
    changed = refusal(loopback.reach)
    assert "is not the one that is known" in changed
    assert "ssh-keygen -R" in changed


def test_a_host_that_does_not_answer_in_time() -> None:
    said = explained("h", ConnectionInfo(), "ssh: connect to host h port 22: Connection timed out\n", 255)
    assert said.startswith("h does not answer: down, or behind a firewall (ssh: connect to host h")


def test_a_host_without_python(loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_hetgpu.extensions.runtimes._ssh.boot_command", lambda: ("nopython3", "-u"))
    assert "there is no python3 on 127.0.0.1" in refusal(loopback.reach)
    for shell in (
        "bash: line 1: python3: command not found",
        "sh: 1: exec: python3: not found",
        "zsh:1: command not found: python3",
        "fish: Unknown command: python3",
        "python3: Command not found.",
    ):
        assert "there is no python3 on h" in explained("h", ConnectionInfo(), shell, 127), shell


def test_a_login_that_greets_is_heard_over(loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_hetgpu.extensions.runtimes.agent.link import boot_command

    greeting = ("sh", "-c", 'echo "Welcome to the machine"; exec "$@"', "sh", *boot_command())
    monkeypatch.setattr("pytest_hetgpu.extensions.runtimes._ssh.boot_command", lambda: greeting)
    member = open_node(loopback.reach)
    assert member.exec(("echo", "x")).stdout == b"x\n"
    member.close()


def test_without_an_ssh_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotHere, match="there is no ssh in PATH: install the OpenSSH client"):
        open_node(ConnectionInfo())


class Shouter(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(self.rfile.readline().upper())


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    """A socket that answers a line with the same in capitals."""
    path = str(tmp_path / "engine.sock")
    socketserver.ThreadingUnixStreamServer.request_queue_size = 50
    with socketserver.ThreadingUnixStreamServer(path, Shouter) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield path
        server.shutdown()
        thread.join()


def shout(path: str, line: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(line + b"\n")
        return client.recv(100)


def test_a_tunnel_leads_to_the_other_end(loopback: Loopback, engine: str) -> None:
    before = {child.pid for child in children()}
    with tunnel("127.0.0.1", loopback.reach, engine) as near:
        assert Path(near).parent.stat().st_mode & 0o777 == 0o700
        with ThreadPoolExecutor(20) as crowd:
            said = list(crowd.map(lambda number: shout(near, b"line %d" % number), range(20)))
    assert said == [b"LINE %d\n" % number for number in range(20)]
    assert not Path(near).parent.exists()
    assert {child.pid for child in children()} <= before


def test_a_tunnel_is_shared_and_stays_until_the_last_has_left(loopback: Loopback, engine: str) -> None:
    with ExitStack() as longer:
        with tunnel("127.0.0.1", loopback.reach, engine) as near:
            before = {child.pid for child in children()}
            assert longer.enter_context(tunnel("127.0.0.1", loopback.reach, engine)) == near
            assert {child.pid for child in children()} == before
        assert shout(near, b"x") == b"X\n"
    assert not Path(near).parent.parent.exists()


def test_a_tunnel_that_broke_is_opened_again_beside_whoever_still_holds_it(loopback: Loopback, engine: str) -> None:
    with tunnel("127.0.0.1", loopback.reach, engine) as broken:
        ssh = [child for child in psutil.Process().children(recursive=True) if child.name() == "ssh"]
        for child in ssh:
            child.kill()
        psutil.wait_procs(ssh, PATIENCE)
        with ExitStack() as longer:
            again = longer.enter_context(tunnel("127.0.0.1", loopback.reach, engine))
            assert again != broken
            with tunnel("127.0.0.1", loopback.reach, engine) as third:
                assert third == again
            assert shout(again, b"x") == b"X\n"
    assert not Path(again).parent.parent.exists()


def test_a_folder_of_somebody_else_s_is_not_used_for_a_tunnel(
    loopback: Loopback, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tunnel("127.0.0.1", loopback.reach, engine) as near:
        name = Path(near).parent.parent.name
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / name).mkdir()
    (tmp_path / name).chmod(0o777)
    said = f"127.0.0.1: {tmp_path / name} is not ours alone: remove it"
    with pytest.raises(ProvisionError, match=re.escape(said)), tunnel("127.0.0.1", loopback.reach, engine):
        pass


def test_a_tunnel_says_what_is_wrong_with_the_socket(loopback: Loopback, tmp_path: Path) -> None:
    missing, plain = tmp_path / "it's missing", tmp_path / "plain"
    plain.touch()
    for path, says in (
        (missing, f"there is no {missing} on 127.0.0.1: is a container engine"),
        (plain, "is no socket"),
    ):
        with pytest.raises(ProvisionError, match=says), tunnel("127.0.0.1", loopback.reach, str(path)):
            pass
    nowhere = dataclasses.replace(loopback.reach, port=free_port())
    with pytest.raises(ProvisionError, match="127.0.0.1: nothing listens"), tunnel("127.0.0.1", nowhere):
        pass


def test_a_tunnel_ends_with_its_maker(loopback: Loopback, engine: str) -> None:
    root = str(Path(pytest_hetgpu.__file__).parent.parent)
    program = """if True:
        import os, signal, sys
        from pytest_hetgpu.model.job import ConnectionInfo
        from pytest_hetgpu.extensions.runtimes._docker.tunnel import tunnel
        engine, user, port, key = sys.argv[1:]
        with tunnel("127.0.0.1", ConnectionInfo("", user, int(port), key), engine) as near:
            print(near, flush=True)
            signal.pause()
    """
    given = (engine, str(loopback.reach.user), str(loopback.reach.port), str(loopback.reach.key))
    with subprocess.Popen(
        [sys.executable, "-c", program, *given],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    ) as maker:
        assert maker.stdout is not None
        near = maker.stdout.readline().strip()
        assert shout(near, b"x") == b"X\n"
        ssh = [child.pid for child in psutil.Process(maker.pid).children(recursive=True)]
        maker.kill()
    assert len(ssh) >= 1
    assert not still_running(ssh, PATIENCE)
    assert not Path(near).parent.parent.exists()
