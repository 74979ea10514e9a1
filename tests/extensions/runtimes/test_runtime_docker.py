"""Nodes that are containers of a real engine."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.errors import LostNode, NotHere, ProvisionError
from pytest_hetgpu.extensions.runtimes._docker.command_line import network_command, run_command
from pytest_hetgpu.extensions.runtimes._docker.engine import close_engines
from pytest_hetgpu.extensions.runtimes.process.ledger import tracker
from pytest_hetgpu.model.job import Reach
from tests.extensions.runtimes.container_nodes import BASE, Site, docker, left, local_site, node, owner

pytestmark = pytest.mark.real


@pytest.fixture
def site(lacking: Callable[[str, str], None]) -> Iterator[Site]:
    yield from local_site(lacking)


ROOT = Path(__file__).resolve().parents[3]


def test_nodes_of_a_placement_know_each_other_by_name(site: Site) -> None:
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(site.open, (node(0), node(1)))
    assert first.exec(("hostname",)).stdout == b"node0\n"
    found = second.exec(("getent", "hosts", "node0"))
    assert found.returncode == 0
    assert found.stdout.split()[0] in first.exec(("hostname", "-i")).stdout.split()


def test_a_node_carries_labels_and_a_name_for_people(site: Site) -> None:
    site.open(node(0))
    found = site.inspect("node0")
    assert found["Name"] == f"/hetgpu-{site.run}-mixed-node0"
    labels = found["Config"]["Labels"]
    assert {key: labels[key] for key in ("hetgpu.run", "hetgpu.owner", "hetgpu.placement", "hetgpu.node")} == {
        "hetgpu.run": site.run,
        "hetgpu.owner": owner(),
        "hetgpu.placement": "mixed",
        "hetgpu.node": "node0",
    }
    assert labels["hetgpu.boot"].split()[2] == str(os.getpid())


def test_closing_is_quick_and_leaves_nothing(site: Site) -> None:
    member = site.open(node(0))
    member.exec(("sh", "-c", "sleep 1000 & setsid sleep 1000 &"))
    started = time.monotonic()
    member.close()
    site.placement().close()
    assert left(site.run) == []
    assert time.monotonic() - started < 5
    member.close()
    with pytest.raises(LostNode):
        member.exec(("true",))


def test_a_name_that_is_taken_is_no_obstacle(site: Site) -> None:
    name = f"hetgpu-{site.run}-mixed-node0"
    docker("create", "--name", name, "--label", f"hetgpu.run={site.run}", BASE, "true")
    try:
        site.open(node(0))
        assert site.inspect("node0")["Name"].startswith(f"/{name}-")
    finally:
        docker("rm", name)


def test_two_placements_at_once_do_not_see_each_other(site: Site) -> None:
    with ThreadPoolExecutor() as pool:
        one, other = pool.map(lambda name: site.open(node(0), name), ("one", "other"))
    assert site.inspect("node0", "one")["Id"] != site.inspect("node0", "other")["Id"]
    networks = [set(site.inspect("node0", name)["NetworkSettings"]["Networks"]) for name in ("one", "other")]
    names = (f"hetgpu-{site.run}-{name}-{site.placement(name).token}" for name in ("one", "other"))
    assert networks == [{name} for name in names]
    one.close()
    assert other.exec(("true",)).returncode == 0


def test_the_host_s_network_can_be_had(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        member = site.open(node(0, network="host"))
        told = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).send(b'here')"
        assert member.exec(("python3", "-c", told, str(server.getsockname()[1]))).returncode == 0
        connection, _ = server.accept()
        with connection:
            assert connection.recv(4) == b"here"
    assert member.exec(("hostname",)).stdout == b"node0\n"


def test_a_killed_container_is_told_as_such(site: Site) -> None:
    member = site.open(node(0))
    docker("kill", site.inspect("node0")["Id"])
    with pytest.raises(LostNode, match=r"node0: .*exit code 137: it was killed \(SIGKILL\)"):
        member.exec(("sleep", "30"))


def removed(ident: str) -> None:
    """Return once the engine has removed a container; a container that ended may still be there."""
    sdk = importlib.import_module("docker")
    with contextlib.closing(sdk.from_env()) as client, contextlib.suppress(sdk.errors.NotFound):
        client.containers.get(ident).wait(condition="removed", timeout=60)


def test_a_process_that_is_killed_leaves_no_container(site: Site) -> None:
    program = f"""
import time
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.extensions.runtimes.docker import Docker
from tests.extensions.runtimes.container_nodes import node, owner, local_site
deployment = Deployment("doomed", {site.run!r}, owner())
members = [Docker.open(node(index), deployment) for index in range(2)]
members[0].exec(("sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"))
print("up", flush=True)
time.sleep(1000)
"""
    child = subprocess.Popen((sys.executable, "-c", program), stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    with child, child.stdout:
        assert child.stdout.readline() == b"up\n"
        idents = docker("ps", "-q", "--no-trunc", "--filter", f"label=hetgpu.run={site.run}").split()
        assert len(idents) == 2
        child.send_signal(signal.SIGKILL)
    for ident in idents:
        removed(ident)
    assert [name for name in left(site.run) if name.endswith(("node0", "node1"))] == []
    # Its network goes when the next process comes.
    close_engines()
    site.open(node(0), "next")
    assert [name for name in left(site.run) if "doomed" in name] == []


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"gpus": "all"}, NotHere, "NVIDIA Container Toolkit"),
        ({"devices": ("/dev/hetgpu-none",)}, NotHere, "has no /dev/hetgpu-none"),
        ({"groups": ("no-such-group",)}, ProvisionError, "has a group no-such-group"),
        ({"user": "nobody-of-that-name"}, ProvisionError, "no user nobody-of-that-name"),
        ({"volumes": ("/no/such:/x",)}, ProvisionError, "has no /no/such"),
        ({"volumes": ("x",)}, ProvisionError, "is not HOST:CONTAINER"),
        ({"cap_add": ("FOO",)}, ProvisionError, "a capability of the hardware"),
        ({"security": ("foo=bar",)}, ProvisionError, "a `security` option"),
    ],
)
def test_what_a_container_cannot_get_is_said(
    site: Site, options: dict[str, Any], kind: type[Exception], said: str
) -> None:
    if "gpus" in options and "nvidia" in docker("info", "--format", "{{json .Runtimes}}"):
        pytest.skip("this engine gives GPUs")
    with pytest.raises(kind, match=f"node0: .*{said}"):
        site.open(node(0, **options))


def test_groups_are_the_host_s(site: Site) -> None:
    member = site.open(node(0, groups=("video", "4242")))
    host = next(line for line in Path("/etc/group").read_text().splitlines() if line.startswith("video:"))
    assert {host.split(":")[2], "4242"} <= set(member.exec(("id", "-G")).stdout.decode().split())


def test_what_is_typed_makes_the_same_container(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    options: dict[str, Any] = {
        "devices": ("/dev/null:/dev/hetgpu",),
        "groups": ("4242",),
        "cap_add": ("SYS_PTRACE",),
        "security": ("seccomp=unconfined",),
        "ipc": "shareable",
        "shm": 1 << 27,
        "ulimits": {"nofile": 1024, "stack": 8 << 20},
        "user": "0:0",
        "volumes": (f"{tmp_path}/data:/data:ro",),
    }
    which = node(0, **options)
    site.open(which)
    placement = f"typed-{site.run}"
    labels = {"hetgpu.run": site.run, "hetgpu.placement": placement, "hetgpu.node": "node0"}
    network = docker(*network_command(which.reach, placement)[1:])
    try:
        docker(*run_command(which, placement, labels=labels)[1:])
        opened, typed = site.inspect("node0"), site.inspect("node0", placement)
    finally:
        docker("rm", "-f", f"hetgpu-{placement}-node0")
        docker("network", "rm", network)
    ours, theirs = opened["HostConfig"], typed["HostConfig"]
    assert [one["CapAdd"][0].removeprefix("CAP_") for one in (ours, theirs)] == ["SYS_PTRACE", "SYS_PTRACE"]
    unlike = {key for key in ours.keys() | theirs.keys() if (ours.get(key) or None) != (theirs.get(key) or None)}
    # Said in other words, each the placement's own, or the size of a terminal that neither has.
    assert unlike - {"CapAdd", "RestartPolicy", "NetworkMode", "ConsoleSize"} == set()
    assert [one["Config"]["Hostname"] for one in (opened, typed)] == ["node0", "node0"]
    assert [one["Config"]["User"] for one in (opened, typed)] == ["0:0", "0:0"]
    for one in (opened, typed):
        (connected,) = one["NetworkSettings"]["Networks"].values()
        assert "node0" in connected["Aliases"]


def test_no_engine_is_said(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    noted: list[Reach] = []
    monkeypatch.setattr(tracker(), "engine", noted.append, raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(NotHere, match=r"node0: the Docker engine at unix://.* does not answer: install Docker"):
        site.open(node(0))
    assert noted == []  # nobody has to look for anything there


def hang_up(server: socket.socket, times: int) -> None:
    for _ in range(times):
        server.accept()[0].close()


def test_an_engine_that_goes_away_is_said(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "deaf.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        closing = threading.Thread(target=hang_up, args=(server, 2), daemon=True)
        closing.start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        with pytest.raises(ProvisionError, match=r"node0: the Docker engine at .* stopped answering"):
            site.open(node(0))
        closing.join(10)
