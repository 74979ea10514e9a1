"""Nodes that are containers of an engine that is reached over ssh: a real sshd of our own, on loopback."""

from __future__ import annotations

import gc
import getpass
import hashlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_hetgpu.errors import LostNode, ProvisionError
from pytest_hetgpu.extensions.runtimes._docker.engine import engine_of
from pytest_hetgpu.model.job import ConnectionInfo, Node
from tests.extensions.runtimes.container_nodes import Site, docker, left, local_site, node

# The SDK forgets to close a socket that it could not connect, as when a tunnel broke.
pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def site(lacking: Callable[[str, str], None]) -> Iterator[Site]:
    yield from local_site(lacking)


ROOT = Path(__file__).resolve().parents[3]
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True)
class Sshd:
    """Where it listens, whose key it takes, and the folder of its files."""

    port: int
    key: Path
    folder: Path

    def node(self, index: int = 0, socket: str = "") -> Node:
        engine = f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}{socket}"
        return replace(node(index), reach=ConnectionInfo(engine, key=str(self.key)))

    def connections(self) -> list[int]:
        """Processes that serve a connection of its."""
        listed = subprocess.run(
            ("pgrep", "-f", f"^sshd: .*{getpass.getuser()}"), capture_output=True, text=True, check=False
        )
        started = {int(pid) for pid in listed.stdout.split()}
        return sorted(pid for pid in started if parent_of(pid) == int((self.folder / "pid").read_text()))


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.fixture
def sshd(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: Callable[[str, str], None]
) -> Iterator[Sshd]:
    """It and an `ssh` in PATH that knows its host key, and no configuration of the user's."""
    ssh, keygen = shutil.which("ssh"), shutil.which("ssh-keygen")
    if not (SSHD and ssh and keygen):
        lacking("ssh", "there is no OpenSSH server and client here")
    assert SSHD
    for name in ("host", "user"):
        subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)), check=True)
    (tmp_path / "authorized").write_text((tmp_path / "user.pub").read_text())
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where an sshd that root starts wants to separate privileges
    words = f"""
ListenAddress 127.0.0.1:{port}
HostKey {tmp_path}/host
AuthorizedKeysFile {tmp_path}/authorized
PidFile {tmp_path}/pid
StrictModes no
UsePAM no
PasswordAuthentication no
"""
    (tmp_path / "sshd_config").write_text(words)
    host_key = " ".join((tmp_path / "host.pub").read_text().split()[:2])
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n")
    (tmp_path / "ssh_config").write_text(f"Host *\n UserKnownHostsFile {tmp_path}/known_hosts\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {tmp_path}/ssh_config "$@"\n')
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    command = (SSHD, "-D", "-e", "-f", str(tmp_path / "sshd_config"))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server_process:
        assert server_process.stderr
        said = ""
        while "listening on" not in said:
            line = server_process.stderr.readline()
            assert line, said
            said += line
        # What it says later must not fill the pipe.
        reading = threading.Thread(target=server_process.stderr.read, daemon=True)
        reading.start()
        made = Sshd(port, tmp_path / "user", tmp_path)
        yield made
        site.close()  # while there is still a way
        for pid in made.connections():
            os.kill(pid, signal.SIGKILL)
        server_process.terminate()
        reading.join(10)


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Such sockets are found here, not in another test."""
    yield
    gc.collect()


def test_nodes_of_one_host_share_a_tunnel(site: Site, sshd: Sshd) -> None:
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(site.open, (sshd.node(0), sshd.node(1)))
    other = site.open(sshd.node(0), "other")
    assert [member.exec(("hostname",)).stdout for member in (first, second, other)] == [
        b"node0\n",
        b"node1\n",
        b"node0\n",
    ]
    assert second.exec(("getent", "hosts", "node0")).returncode == 0
    assert len(sshd.connections()) == 1
    site.close()
    assert sshd.connections() == []


def test_much_goes_through_the_tunnel(site: Site, sshd: Sshd) -> None:
    member = site.open(sshd.node(0))
    data = os.urandom(1 << 16) * 16
    member.put({"data": data})
    counted = member.exec(("sha256sum", f"{member.folder}/data")).stdout.split()[0]
    assert counted.decode() == hashlib.sha256(data).hexdigest()


def test_a_tunnel_that_broke_is_made_again(site: Site, sshd: Sshd) -> None:
    lost = site.open(sshd.node(0))
    ident = site.inspect("node0")["Id"]
    for pid in sshd.connections():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(LostNode):
        lost.exec(("sleep", "30"))
    subprocess.run(("docker", "wait", ident), capture_output=True, check=False, timeout=30)
    member = site.open(sshd.node(0))
    assert member.exec(("hostname",)).stdout == b"node0\n"
    assert site.inspect("node0")["Id"] != ident


def test_a_process_that_is_killed_leaves_neither_tunnel_nor_container(site: Site, sshd: Sshd) -> None:
    program = f"""
import time
from pytest_hetgpu.model.job import *
from pytest_hetgpu.model.job import ContainerOptions, Image, Node, ConnectionInfo
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.extensions.runtimes.docker import Docker
from tests.extensions.runtimes.container_nodes import owner
members = Docker.open({sshd.node(0)!r}, Deployment("doomed", {site.run!r}, owner()))
print("up", flush=True)
time.sleep(1000)
"""
    child = subprocess.Popen((sys.executable, "-c", program), stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    with child, child.stdout:
        assert child.stdout.readline() == b"up\n"
        ident = docker("ps", "-q", "--no-trunc", "--filter", f"label=hetgpu.run={site.run}")
        with subprocess.Popen(("docker", "wait", ident), stdout=subprocess.DEVNULL) as waiting:
            (connection,) = sshd.connections()
            handle = os.pidfd_open(connection)
            child.send_signal(signal.SIGKILL)
            waiting.wait(30)
    assert select.select([handle], [], [], 30)[0], "the tunnel is still there"
    os.close(handle)
    subprocess.run(("docker", "wait", ident), capture_output=True, check=False, timeout=30)
    site.open(sshd.node(0), "next")
    assert [name for name in left(site.run) if "doomed" in name] == []


def test_a_host_without_an_engine_is_said(site: Site, sshd: Sshd, tmp_path: Path) -> None:
    with pytest.raises(ProvisionError, match=r"^node0: there is no /no/engine.sock on 127.0.0.1"):
        site.open(sshd.node(0, "/no/engine.sock"))


def test_a_key_that_is_not_let_in_is_said(site: Site, sshd: Sshd) -> None:
    (sshd.folder / "authorized").write_text("")
    with pytest.raises(ProvisionError, match=r"^node0: 127.0.0.1, port \d+ does not let us in"):
        site.open(sshd.node(0))


def test_the_engine_s_own_words_come_through(site: Site, sshd: Sshd) -> None:
    which = sshd.node(0)
    assert which.container
    with pytest.raises(ProvisionError, match="node0: the image has no user nobody-here"):
        site.open(replace(which, container=replace(which.container, user="nobody-here")))
    assert engine_of("node0", which.reach).at.where == "the Docker engine of 127.0.0.1"
    assert docker("network", "ls", "--filter", f"label=hetgpu.run={site.run}", "-q")
