"""The GID index in plans: no node has been seen yet, so each command finds it on its node."""

from __future__ import annotations

import json
import re
import shlex
import stat
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from pytest_hetgpu.cluster import network
from pytest_hetgpu.config.inventory.hosts import Host
from pytest_hetgpu.extensions.runtimes.base import RemoteNode
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import Image, Job
from pytest_hetgpu.planning.matrix_set import MatrixSet, RunInputs
from pytest_hetgpu.planning.placement import DiscoveredNode
from pytest_hetgpu.reporting import messages
from tests.cluster.test_network import TABLE, Told, environment
from tests.extensions.probes.test_rdma_choice import GOOD, Port, look
from tests.planning.plan_cases import Plans, plans, site

__all__ = ["plans"]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "pytest_hetgpu" / "remote" / "gid_index.py"
TEXT = """\
name: rails
hardware:
  rail: {runtime: ssh, fabric: {kind: roce, netdev: ens5f0, hca: mlx5_0}}
  any: {runtime: ssh, fabric: {kind: roce}}
  fixed: {runtime: ssh, fabric: {kind: roce, gid_index: 3}}
  bands: {runtime: ssh, fabric: {kind: infiniband}}
axes:
  placement: {rail: [rail, rail], any: [any, any], fixed: [fixed, fixed], bands: [bands, bands]}
  transport: {auto: {}}
  workload: {allreduce: {sizes: 8}}
"""
HOSTS = {name: (Host("a"), Host("b")) for name in ("rail", "any", "fixed", "bands")}
HERE = site(HOSTS)


@pytest.mark.parametrize(
    ("placement", "words"),
    [("rail", ("mlx5_0", "ens5f0")), ("any", ("-", "-")), ("fixed", ()), ("bands", ())],
)
def test_a_node_that_nobody_has_seen_finds_its_own_index(plans: Plans, placement: str, words: tuple[str, ...]) -> None:
    tokens = plans(f"{placement}-auto-allreduce", TEXT, HERE).command.argv
    assert ("/tmp/hetgpu/programs/gid_index.py" in tokens) == bool(words)
    if words:
        at = tokens.index("/tmp/hetgpu/programs/gid_index.py")
        assert tokens[at + 1 : at + 3] == words
        assert (tokens[at - 1], tokens[at + 3]) == ("python3", "python3")


def devices(job: Job) -> set[str]:
    return {token for token in job.command.argv if token.startswith("UCX_NET_DEVICES=")}


def test_a_pasted_command_leaves_tcp_its_devices(plans: Plans) -> None:
    """The program would set the HCA alone if nothing else set UCX_NET_DEVICES."""
    text = TEXT.replace("auto: {}", "tcp: {family: ucx, tls: [tcp, self]}, rc: {family: ucx, tls: [rc, self]}")
    assert devices(plans("any-tcp-allreduce", text, HERE)) == {"UCX_NET_DEVICES=all"}
    assert devices(plans("any-rc-allreduce", text, HERE)) == set()
    assert devices(plans("rail-tcp-allreduce", text, HERE)) == {"UCX_NET_DEVICES=ens5f0"}


def test_a_device_that_the_hardware_names_is_that_of_plan_and_run(plans: Plans) -> None:
    text = TEXT.replace("any: {runtime: ssh,", "any: {runtime: ssh, env: {UCX_NET_DEVICES: mlx5_1:1},")
    text = text.replace("auto: {}", "rc: {family: ucx, tls: [rc, tcp, self]}")
    sight = DiscoveredNode(netdev="ens5f0", hca="mlx5_0", gid_index=3, interface=InterfaceChoice("ens5f0", "seen"))
    for here in (HERE, site(HOSTS, discovered={0: sight, 1: sight})):
        job = plans("any-rc-allreduce", text, here)
        assert devices(job) == {"UCX_NET_DEVICES=mlx5_1:1"}
        assert str(job.nodes[0].interface) == "mlx5_1:1 (UCX_NET_DEVICES of any names it)"


@pytest.mark.parametrize("host", ["pod", "container"])
def test_the_interface_for_tcp_says_nothing_of_the_one_for_roce(plans: Plans, host: str) -> None:
    """The plan takes eth0 and lo for TCP; the GID may be on any interface, as the matrix names none."""
    kinds = {
        "pod": 'pod: {runtime: kubernetes, image: "r/one:1", fabric: {kind: roce}}',
        "container": "container: {runtime: docker, image: one, container: {network: host}, fabric: {kind: roce}}",
    }
    text = (
        f"name: rails\nhardware:\n  {kinds[host]}\naxes:\n  placement: {{two: [{host}, {host}]}}\n"
        "  transport: {auto: {}}\n  workload: {allreduce: {sizes: 8}}\n"
    )
    there = site({"container": (Host("localhost"),) * 2}, images={"container": Image("one:1")})
    job = plans("two-auto-allreduce", text, there)
    assert {node.hardware.fabric.netdev for node in job.nodes} == {"eth0" if host == "pod" else "lo"}
    tokens = job.command.argv
    at = tokens.index("/tmp/hetgpu/programs/gid_index.py")
    assert tokens[at + 1 : at + 3] == ("-", "-")
    sight = network.discover(job.nodes[0], cast(RemoteNode, Told()), environment(TABLE), alone=host == "container")
    assert (sight.hca, sight.netdev, sight.gid_index) == ("mlx5_0", "" if host == "container" else "ens5f0", 3)


def test_a_node_that_was_seen_is_told_it(plans: Plans) -> None:
    seen = {index: DiscoveredNode(gid_index=index + 3) for index in range(2)}
    tokens = plans("rail-auto-allreduce", TEXT, site(HOSTS, discovered=seen)).command.argv
    assert not any(token.endswith("gid_index.py") for token in tokens)
    assert {"NCCL_IB_GID_INDEX=3", "UCX_IB_GID_INDEX=3", "NCCL_IB_GID_INDEX=4", "UCX_IB_GID_INDEX=4"} <= {*tokens}


@cache
def planned(name: str) -> tuple[str, ...]:
    matrix = ROOT / "matrices" / f"{name}.yaml"
    hosts = matrix.with_name(f"{name}.hosts.yaml")
    environ = {"XDG_CACHE_HOME": "cache"}
    suite = MatrixSet.load([matrix], ROOT, timeout=60, environ=environ, inputs=RunInputs(hosts))
    return tuple(line.strip() for line in messages.plan_lines(suite, suite.scenarios))


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("roce", "docker -H ssh://hetgpu@198.51.100.11 exec hetgpu-roce-two-100-node0 {} mlx5_0 ens5f0"),
        ("runai", 'kubectl --namespace runai-team exec "$pod1" -c pytorch -- {} mlx5_bond_0 net1'),
        ("kubernetes", 'kubectl --namespace hetgpu exec "$pod0" -c main -- {} mlx5_0 net1'),
    ],
)
def test_a_plan_says_how_the_index_is_found(name: str, command: str) -> None:
    lines = planned(name)
    asking = f"# {command.format('python3 /tmp/hetgpu/programs/gid_index.py')}"
    assert asking in lines
    before = [line for line in lines[: lines.index(asking)] if line.startswith("# gid_index.py")]
    assert before[-1] == (
        "# gid_index.py sets NCCL_IB_GID_INDEX and UCX_IB_GID_INDEX for ranks; alone it prints the index of a node:"
    )


@pytest.mark.parametrize("name", ["roce", "runai", "kubernetes"])
def test_every_rank_command_over_roce_finds_it(name: str) -> None:
    """RoCE commands are recognised by the variable that only its fabric sets, or by the pods that have its adapter."""
    commands = [line for line in planned(name) if line.startswith("$ ")]
    over_roce = [line for line in commands if name != "kubernetes" or "NCCL_IB_HCA=" in line]
    assert over_roce
    for line in over_roce:
        folder = "/scratch" if line.startswith("$ runai submit") else "/tmp"
        assert re.search(rf" {folder}/hetgpu/programs/gid_index\.py mlx5_\w+ \S+ python3 ", line), line


def test_a_job_that_runai_starts_by_itself_has_the_index_in_its_ranks(tmp_path: Path) -> None:
    """The test runs the shell line of the pod, with torchrun, the interpreter of ranks and sysfs in their places."""
    look(tmp_path, Port("mlx5_bond_0", gids=GOOD))
    line = next(line for line in planned("runai") if line.startswith("$ runai submit"))
    script = shlex.split(shlex.split(line)[-1])
    ranks = script[0].split(" --tee 3 ")[1]
    tell = 'import json, os; print(json.dumps({k: v for k, v in os.environ.items() if "IB_GID" in k}))'
    stand_in = tmp_path / "bin" / "python3"
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, '-c', tell])}\n")
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    program = tmp_path / "gid_index.py"
    program.write_text(PROGRAM.read_text().replace("/sys/class", f"{tmp_path}/sys/class"))
    pod = ranks.replace("/scratch/hetgpu/programs/gid_index.py", str(program))
    done = subprocess.run(
        ["sh", "-c", f"exec {shlex.quote(sys.executable)} {pod}"],
        env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout) == {"NCCL_IB_GID_INDEX": "9", "UCX_IB_GID_INDEX": "9"}, done.stderr
