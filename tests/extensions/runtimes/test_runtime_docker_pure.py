"""What the runtime docker decides without an engine: addresses, what it asks for, what an engine's words mean."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.extensions.runtimes._docker.address import address
from pytest_hetgpu.extensions.runtimes._docker.containers import (
    boot_label,
    container_name,
    gpu_request,
    host_config,
    labels_of,
    mount,
)
from pytest_hetgpu.extensions.runtimes._docker.engine import Engine, engine_of
from pytest_hetgpu.extensions.runtimes._docker.errors import ended, refused, unreachable
from pytest_hetgpu.extensions.runtimes._docker.leftovers import labelled
from pytest_hetgpu.extensions.runtimes._docker.networks import group_numbers, groups_in, orphaned, remove_left_behind
from pytest_hetgpu.extensions.runtimes._docker.node import ContainerNode
from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.extensions.runtimes.docker import Docker
from pytest_hetgpu.model.job import ConnectionInfo, ContainerOptions, Hardware, Image, Node

NODE = Node(0, Hardware("cpu"), "localhost", 1, name="node0", image=Image("x"), container=ContainerOptions())


@pytest.mark.parametrize(
    ("engine", "environ", "url", "where"),
    [
        ("", {}, "unix:///var/run/docker.sock", "this machine's Docker engine"),
        ("", {"DOCKER_HOST": "unix:///run/x.sock"}, "unix:///run/x.sock", "the Docker engine at unix:///run/x.sock"),
        ("unix:///a", {"DOCKER_HOST": "unix:///b"}, "unix:///a", "the Docker engine at unix:///a"),
        ("tcp://h:2376", {"DOCKER_TLS_VERIFY": "1"}, "tcp://h:2376", "the Docker engine at h:2376"),
    ],
)
def test_an_engine_here_or_over_tls(engine: str, environ: dict[str, str], url: str, where: str) -> None:
    at = address("node0", ConnectionInfo(engine), environ)
    assert (at.url, at.where, at.by_ssh) == (url, where, False)


@pytest.mark.parametrize(
    ("reach", "environ", "user", "port", "socket"),
    [
        (ConnectionInfo("ssh://u@h:2222"), {}, "u", 2222, "/var/run/docker.sock"),
        (ConnectionInfo("ssh://h", "ubuntu", 22, "/k"), {}, "ubuntu", 22, "/var/run/docker.sock"),
        (ConnectionInfo("ssh://u@h/run/user/1/docker.sock", "other"), {}, "u", None, "/run/user/1/docker.sock"),
        (ConnectionInfo(), {"DOCKER_HOST": "ssh://u@h"}, "u", None, "/var/run/docker.sock"),
    ],
)
def test_an_engine_over_ssh(
    reach: ConnectionInfo, environ: dict[str, str], user: str, port: int | None, socket: str
) -> None:
    at = address("node0", reach, environ)
    assert (at.by_ssh, at.local, at.host) == (True, False, "h")
    assert at.reach
    assert (at.reach.user, at.reach.port, at.reach.key, at.socket) == (user, port, reach.key, socket)


def test_one_host_is_one_engine_however_it_is_written() -> None:
    first = address("a", ConnectionInfo("ssh://u@h:22"), {})
    assert first == address("b", ConnectionInfo("ssh://h", "u", 22), {})
    assert first != address("c", ConnectionInfo("ssh://other@h:22"), {})


@pytest.mark.parametrize("engine", ["tcp://h:2375", "http://h:2375", "https://h:2376"])
def test_an_engine_that_lets_anyone_in_is_not_used(engine: str) -> None:
    expected = "only over ssh or TLS" if engine != "http://h:2375" else "write ssh://"
    with pytest.raises(ProvisionError, match=f"node0: .*{expected}"):
        address("node0", ConnectionInfo(engine), {})
    with pytest.raises(ProvisionError, match=expected):
        address("node0", ConnectionInfo(), {"DOCKER_HOST": engine})


@pytest.mark.parametrize("engine", ["ssh://", "ssh://u:secret@h", "ssh://h:port", "h", "npipe:////./pipe/docker"])
def test_an_address_that_is_none_is_said(engine: str) -> None:
    with pytest.raises(ProvisionError, match="node0: .* is no address of an engine: "):
        address("node0", ConnectionInfo(engine), {})


def test_a_host_that_is_not_reached_is_named_once(tmp_path: Path) -> None:
    engine = engine_of("node1", ConnectionInfo("ssh://u@192.0.2.21", key=str(tmp_path / "aws.pem")))
    with pytest.raises(ProvisionError) as caught, engine.speaking("node1"):
        pass
    assert str(caught.value) == f"node1: key {tmp_path}/aws.pem of the inventory: no such file"


def test_the_least_container_asks_for_nothing_special() -> None:
    assert host_config(ContainerOptions(), "abc") == {"auto_remove": True, "init": True, "network_mode": "abc"}


def test_a_container_gets_what_its_hardware_wants() -> None:
    options = ContainerOptions(
        devices=("/dev/kfd",),
        groups=("44",),
        cap_add=("SYS_PTRACE",),
        security=("seccomp=unconfined",),
        ipc="host",
        shm=1 << 30,
        ulimits={"memlock": -1},
        gpus="all",
        volumes=("/data:/d:ro",),
    )
    assert host_config(options, "host") == {
        "auto_remove": True,
        "init": True,
        "network_mode": "host",
        "devices": ["/dev/kfd"],
        "group_add": ["44"],
        "cap_add": ["SYS_PTRACE"],
        "security_opt": ["seccomp=unconfined"],
        "ipc_mode": "host",
        "shm_size": 1 << 30,
        "ulimits": [{"name": "memlock", "soft": -1, "hard": -1}],
        "device_requests": [gpu_request("all")],
        "mounts": [{"Type": "bind", "Source": "/data", "Target": "/d", "ReadOnly": True}],
    }


def test_a_seccomp_profile_is_sent_as_text(tmp_path: Path) -> None:
    profile = tmp_path / "p.json"
    profile.write_text('{"defaultAction": "SCMP_ACT_ALLOW"}')
    asked = host_config(ContainerOptions(security=(f"seccomp={profile}",)), "host")
    assert asked["security_opt"] == ['seccomp={"defaultAction": "SCMP_ACT_ALLOW"}']
    with pytest.raises(ValueError, match="nowhere cannot be read: No such file"):
        host_config(ContainerOptions(security=("seccomp=/nowhere",)), "host")


@pytest.mark.parametrize(
    ("gpus", "count", "devices"),
    [("all", -1, None), ("2", 2, None), ("device=0,1", 0, ["0", "1"]), ('"device=GPU-3a"', 0, ["GPU-3a"])],
)
def test_gpus(gpus: str, count: int, devices: list[str] | None) -> None:
    request = gpu_request(gpus)
    assert (request["count"], request["device_ids"], request["capabilities"]) == (count, devices, [["gpu"]])


@pytest.mark.parametrize("gpus", ["some", "device=", "count=2"])
def test_gpus_that_are_none(gpus: str) -> None:
    with pytest.raises(ValueError, match="is none of: all, a number, device=0,1"):
        gpu_request(gpus)


def test_volumes() -> None:
    assert mount("cache:/c") == {"Type": "volume", "Source": "cache", "Target": "/c"}
    assert mount("/a:/c:rw") == {"Type": "bind", "Source": "/a", "Target": "/c"}
    for wrong in ("/a", "/a:c", "/a:/c:z", ":/c"):
        with pytest.raises(ValueError, match="is not HOST:CONTAINER"):
            mount(wrong)


def test_names_have_only_what_engines_take() -> None:
    assert (
        container_name(Deployment("mixed", "20250101T10:00+x", "me@h:1"), NODE) == "hetgpu-20250101T10-00-x-mixed-node0"
    )


def test_groups_are_read() -> None:
    assert groups_in("root:x:0:\nvideo:x:44:a,b\nbroken\n+::::\n") == {"root": "0", "video": "44"}


def test_only_what_a_dead_process_of_this_machine_made_is_left_behind() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        label = boot_label(child.pid)
        assert not orphaned({"hetgpu.boot": label})
        child.communicate(b"\n")
    boot, namespace, pid, start = label.split()
    assert int(pid) == child.pid
    assert orphaned({"hetgpu.boot": label})
    assert not orphaned({"hetgpu.boot": f"{boot} pid:[1] {pid} {start}"})
    assert not orphaned({"hetgpu.boot": f"another {namespace} {pid} {start}"})
    assert not orphaned({"hetgpu.boot": f"{boot} {namespace} {10**30} {start}"})
    assert orphaned({"hetgpu.boot": f"{boot} {namespace} {os.getpid()} 1"})  # its number is ours now
    assert not orphaned(labels_of(Deployment("p", "r", "me@h:1")))
    for other in ({"hetgpu.owner": f"me@h:{pid}"}, {"hetgpu.boot": "nonsense"}, {}):
        assert not orphaned(other)


@pytest.mark.parametrize(
    ("said", "absent", "advice"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', True, "NVIDIA Container Toolkit"),
        ("nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1", True, "NVIDIA's driver"),
        ("nvidia-container-cli: device error: 7: unknown device: unknown", True, "no such GPU: 7: unknown device"),
        (
            'error gathering device information while adding custom device "/dev/kfd": no such file or directory',
            True,
            "the host of E has no /dev/kfd",
        ),
        ("write /var/lib/docker/tmp/x: no space left on device", False, "the disk of E is full"),
        ("Unable to find group render: no matching entries in group file", False, "has a group render"),
        ("unable to find user nob: no matching entries in passwd file", False, "no user nob"),
        ("bind source path does not exist: /nosuch", False, "has no /nosuch"),
        ("error setting rlimit type 8: operation not permitted: unknown", False, "may not raise limits"),
        ('exec: "python3": executable file not found in $PATH', False, "the image has no python3: a node needs"),
        ("[FATAL tini (7)] exec python3 failed: No such file or directory", False, "the image has no python3"),
        ("[FATAL tini (7)] exec python3 failed: Exec format error", False, "another processor architecture"),
        ("could not find an available, non-overlapping IPv4 address pool among", False, "no address range left"),
        ("the --mount option requires BuildKit. Refer to https://docs", False, "needs BuildKit"),
        ("pull access denied for x, repository does not exist or may require", False, "no such image, or does not"),
        ("manifest for debian:nosuch not found: manifest unknown", False, "not this tag"),
        ("no matching manifest for linux/arm64 in the manifest list", False, "not for linux/arm64"),
        ('Get "https://r/v2/": dial tcp: lookup r: no such host', False, "cannot reach the registry"),
        ("toomanyrequests: You have reached your pull rate limit", False, "limits how often"),
        ("x509: certificate signed by unknown authority", False, "does not trust the registry"),
        ("invalid reference format", False, "no name of an image"),
        ("something never seen", False, "E refused: something never seen"),
    ],
)
def test_what_an_engine_says_is_explained(said: str, absent: bool, advice: str) -> None:
    trouble = refused(said, "E")
    assert trouble.absent is absent
    assert advice in trouble.text
    assert said in trouble.text


@pytest.mark.parametrize(
    ("said", "absent", "advice"),
    [
        ("PermissionError(13, 'Permission denied')", False, "add yourself to the group docker"),
        ("FileNotFoundError(2, 'No such file or directory')", True, "--hetgpu-inventory"),
        ("ConnectionRefusedError(111, 'Connection refused')", True, "start its daemon"),
        ("UnixHTTPConnectionPool: Read timed out. (read timeout=60)", False, "has not answered for a minute"),
        ("RemoteDisconnected('Remote end closed connection without response')", False, "E stopped answering"),
    ],
)
def test_an_engine_out_of_reach_is_explained(said: str, absent: bool, advice: str) -> None:
    trouble = unreachable(said, "E")
    assert (trouble.absent, advice in trouble.text) == (absent, True)


def test_the_end_of_a_container_is_explained() -> None:
    assert "exit code 137: it was killed" in ended(137, "", "E")
    assert ended(3, "bye", "E").endswith("exit code 3: its agent failed; it printed: bye")
    assert ended(127, "[FATAL tini (7)] exec python3 failed: No such file or directory", "E").startswith(
        "the image has no python3"
    )
    assert ended(None, "", "E") == "the container is gone"


def test_without_the_sdk_nodes_are_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(NotHere, match=r"pip install 'pytest-hetgpu\[docker\]'"):
        Docker.open(NODE, Deployment("p", "r", "me@h:1"))


def test_a_node_without_an_image_is_said() -> None:
    bare = Node(0, Hardware("cpu"), "localhost", 1, name="node0")
    with pytest.raises(ProvisionError, match="node0: has no image"):
        Docker.open(bare, Deployment("p", "r", "me@h:1"))


def test_the_container_that_shows_a_host_s_groups_carries_labels_too() -> None:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        member = tarfile.TarInfo("group")
        member.size = len(b"video:x:44:\n")
        archive.addfile(member, io.BytesIO(b"video:x:44:\n"))
    engine, deployment = MagicMock(), Deployment("p", "r", "me@h:1")
    api = engine.speaking.return_value.__enter__.return_value
    api.get_archive.return_value = ([tar.getvalue()], {})
    node = replace(NODE, container=ContainerOptions(groups=("video", "7")))
    assert group_numbers(engine, node, deployment) == ("44", "7")
    assert api.create_container.call_args.kwargs["labels"] == labels_of(deployment)
    assert boot_label(os.getpid()) in labels_of(deployment).values()


@pytest.mark.parametrize(("version", "alone"), [("1.40", True), ("1.41", True), ("1.42", False), ("1.51", False)])
def test_an_engine_with_the_deadlock_removes_one_container_at_a_time(
    version: str, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(address("node0", ConnectionInfo(), {}))
    engine._api = MagicMock(api_version=version)
    closed: list[bool] = []

    def close(_node: AgentNode) -> None:
        free = engine._removal.acquire(blocking=False)
        closed.append(not free)
        if free:
            engine._removal.release()

    monkeypatch.setattr(AgentNode, "close", close)
    node = ContainerNode(engine, MagicMock(), "node0", lambda: None)
    node.close()
    assert closed == [alone]
    assert not engine._removal.locked()


class EngineWithNameless:
    """An engine that was killed while it made a container: it lists the container without a name."""

    def __init__(self, names: list[str] | None) -> None:
        label = boot_label(os.getpid()).rsplit(" ", 1)[0] + " 1"
        labels = {"hetgpu.label": "r", "hetgpu.boot": label}
        self.api = MagicMock()
        self.api.containers.return_value = [{"Id": "e9561e3bcbcc0123", "Names": names, "Labels": labels, "Created": 1}]
        self.api.networks.return_value = []

    @contextmanager
    def speaking(self, _node: str) -> Iterator[Any]:
        yield self.api


@pytest.mark.parametrize("names", [[], None])
def test_a_container_without_a_name_is_removed_by_its_id(names: list[str] | None) -> None:
    engine = EngineWithNameless(names)
    assert remove_left_behind(engine, "n") == ("e9561e3bcbcc",)  # type: ignore[arg-type]
    engine.api.remove_container.assert_called_once()
    assert [one.name for one in labelled(engine, "n")] == ["e9561e3bcbcc"]  # type: ignore[arg-type]
