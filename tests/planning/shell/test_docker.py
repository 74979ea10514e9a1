from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.model.job import ConnectionInfo, ContainerOptions, Hardware, Image, Node
from pytest_hetgpu.planning.shell.docker import build_command, network_command, run_command

PLAIN = Node(
    0,
    Hardware("cpu"),
    "localhost",
    1,
    name="node0",
    image=Image("debian:12"),
    container=ContainerOptions(network="user"),
)
ROCM = ContainerOptions(
    network="host",
    devices=("/dev/kfd", "/dev/dri"),
    groups=("video", "render"),
    cap_add=("SYS_PTRACE",),
    security=("seccomp=unconfined",),
    ipc="host",
    shm=8 << 30,
    ulimits={"stack": 67108864, "memlock": -1},
    gpus="device=0,1",
    user="1000:1000",
    volumes=("/data:/data:ro", "cache:/cache"),
)


def test_the_least_container() -> None:
    assert run_command(PLAIN, "mixed") == (
        *("docker", "run", "-d", "--rm", "--init", "--name", "hetgpu-mixed-node0", "--hostname", "node0"),
        *("--network", "hetgpu-mixed", "--network-alias", "node0"),
        *("--entrypoint", "sleep", "debian:12", "infinity"),
    )


def test_a_container_with_everything_on_another_host() -> None:
    node = replace(PLAIN, container=ROCM, reach=ConnectionInfo("ssh://u@h:2222"))
    assert run_command(node, "mixed", labels={"hetgpu.run": "r", "a": "b c"}) == (
        *("docker", "-H", "ssh://u@h:2222", "run", "-d", "--rm", "--init"),
        *("--name", "hetgpu-mixed-node0", "--hostname", "node0", "--network", "host"),
        *("--label=a=b c", "--label=hetgpu.run=r", "--device=/dev/kfd", "--device=/dev/dri"),
        *("--group-add=video", "--group-add=render", "--cap-add=SYS_PTRACE", "--security-opt=seccomp=unconfined"),
        *("--ipc=host", "--shm-size=8589934592", "--ulimit=memlock=-1", "--ulimit=stack=67108864"),
        *('--gpus="device=0,1"', "--user=1000:1000"),
        "--mount=type=bind,source=/data,target=/data,readonly",
        "--mount=type=volume,source=cache,target=/cache",
        *("--entrypoint", "sleep", "debian:12", "infinity"),
    )


@pytest.mark.parametrize(("gpus", "typed"), [("all", "all"), ("2", "2"), ("device=0", "device=0")])
def test_gpus_without_commas_need_no_quotes(gpus: str, typed: str) -> None:
    node = replace(PLAIN, container=ContainerOptions(network="user", gpus=gpus))
    assert f"--gpus={typed}" in run_command(node, "p")


@pytest.mark.parametrize(
    ("reach", "address"),
    [
        (ConnectionInfo("ssh://h", "ubuntu", 2200), "ssh://ubuntu@h:2200"),
        (ConnectionInfo("ssh://me@h:22/run/d.sock", "ubuntu", 2200), "ssh://me@h:22/run/d.sock"),
        (ConnectionInfo("ssh://[fe80::1]", None, 2200), "ssh://[fe80::1]:2200"),
        (ConnectionInfo("unix:///run/d.sock", "ubuntu"), "unix:///run/d.sock"),
    ],
)
def test_an_address_has_what_the_host_s_entry_says(reach: ConnectionInfo, address: str) -> None:
    assert network_command(reach, "mixed") == ("docker", "-H", address, "network", "create", "hetgpu-mixed")


def test_building() -> None:
    image = Image("hetgpu/x:1", "/c/x", {"BASE": "b:1", "A": "2"}, network="host")
    assert build_command(image, ConnectionInfo()) == (
        *("docker", "build", "-t", "hetgpu/x:1", "--build-arg", "A=2", "--build-arg", "BASE=b:1"),
        *("--network", "host", "/c/x"),
    )
    assert build_command(Image("debian:12"), ConnectionInfo()) == ()
