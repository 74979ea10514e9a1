"""What the way between real containers carries: read right, told beside each bandwidth, and never in a run's way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.nodes_here import AXES, BUILD, HEAD, HOSTS, docker, environment, left, properties

pytestmark = pytest.mark.real

Nodes = Callable[..., pytest.RunResult]

WORKLOADS = "{barrier: {}, allreduce: {sizes: [8, 4M]}}"
SLOW = """\
import subprocess
from pathlib import Path

IFLINK = "/sys/class/net/eth0/iflink"

def test_cell(cluster, run):
    number = cluster.nodes[1].runtime.read([IFLINK])[IFLINK].decode().strip()
    links = Path("/sys/class/net").glob("*/ifindex")
    link = next(path.parent.name for path in links if path.read_text().strip() == number)
    shape = "tbf rate 400mbit burst 64kb latency 20ms".split()
    subprocess.run(["tc", "qdisc", "replace", "dev", link, "root", *shape], check=True)
    run()
"""
# 400 Mbit/s of Ethernet frames of 1514 bytes, of which 1448 are TCP's payload.
GBS = 0.4 / 8 * 1448 / 1514


@pytest.fixture
def shaping(lacking: Callable[[str, str], None]) -> None:
    """The ends of containers' links are ours to slow down."""
    if os.geteuid() or not shutil.which("tc"):
        lacking("tc", "slowing a link down needs root and tc: apt-get install iproute2")


@pytest.mark.usefixtures("shaping")
def test_a_link_of_400_mbit_is_read_as_that_and_bandwidths_are_fractions_of_it(
    nodes: Nodes, pytester: pytest.Pytester
) -> None:
    pytester.path.joinpath("test_slow.py").write_text(SLOW)
    # The link is exact, the machine is not: over a second its hiccups are few.
    seconds = ("--hetgpu-wire", "1")
    result = nodes(AXES.replace("{allreduce: {sizes: [8, 64K]}}", WORKLOADS), "test_slow.py", *seconds)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*allreduce*% of the wire)*", "wire of pair: 0.0* GB/s, * node0 to node1, round trip *"]
    )
    cells = properties(pytester.path / "reports")
    sent = cells["pair-ob1-allreduce"]
    assert float(sent["wire"]) == pytest.approx(GBS, rel=0.05)
    assert float(sent["of_wire[4194304,float32]"]) == pytest.approx(
        float(sent["busbw[4194304,float32]"]) / float(sent["wire"])
    )
    assert 0.3 < float(sent["of_wire[4194304,float32]"]) < 1.1
    # What moves no data has no limit, and is not measured for.
    assert not {"wire", "wire_told"} & cells["pair-ob1-barrier"].keys()
    found = environment(pytester.path / "reports", "pair")["wire"]
    assert found["seconds"] < 20
    (pair,) = found["pairs"]
    slow = [flow for flow in pair["flows"] if flow["receiver"] == "node1"]
    fast = [flow for flow in pair["flows"] if flow["receiver"] == "node0"]
    assert [flow["streams"] for flow in slow] == [1, 4]
    assert max(max(flow["gbs"]) for flow in slow) < min(max(flow["gbs"]) for flow in fast)
    assert pair["least_rtt"] <= pair["rtt"]
    assert not pair["loopback"]
    run = pytester.path / "reports" / "latest"
    assert "| nodes-pair | 0.0" in (run / "summary.md").read_text()
    again = subprocess.run((sys.executable, "-m", "pytest_hetgpu.cli", "report", str(run.resolve())), check=False)
    assert again.returncode == 0
    assert properties(pytester.path / "reports")["pair-ob1-allreduce"]["wire"] == sent["wire"]


@pytest.mark.nightly(reason="sweeps over limited links")
def test_a_cell_is_held_against_the_wire_it_runs_over(nodes: Nodes, pytester: pytest.Pytester) -> None:
    rule = "reference:\n  - {where: {workload: allreduce}, of: wire, fraction: FRACTION}\n"
    axes = AXES.replace("[8, 64K]", "[8, 4M]") + rule
    assert nodes(axes.replace("FRACTION", "0.01")).ret == 0
    result = nodes(axes.replace("FRACTION", "20"))
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*slow (new): 4M float32: busbw * from 20 of the * GB/s of the wire (nodes.yaml:10); *"]
    )
    result = nodes(axes.replace("FRACTION", "0.01"), "--hetgpu-wire", "off")
    assert result.ret == 1
    why = "not compared at 4M float32 with 0.01 of the wire (nodes.yaml:10): nothing was measured between its nodes"
    result.stdout.fnmatch_lines([f"*unknown (new): {why}*"])


def test_nobody_is_asked_who_wants_it_off(nodes: Nodes, pytester: pytest.Pytester) -> None:
    assert nodes(AXES, "--hetgpu-wire", "off").ret == 0
    (cell,) = properties(pytester.path / "reports").values()
    assert not [name for name in cell if "wire" in name]
    assert "wire" not in environment(pytester.path / "reports", "pair")


def test_a_node_that_dies_meanwhile_costs_the_limit_its_cell_and_not_the_run(
    engine: None, pytester: pytest.Pytester, nodes: Nodes
) -> None:
    pytester.path.joinpath("hosts.yaml").write_text(HOSTS + BUILD)
    workloads = "{allreduce: {sizes: 8, timeout: 30}, send_recv: {sizes: 8}}"
    pytester.path.joinpath("nodes.yaml").write_text(HEAD + AXES.replace("{allreduce: {sizes: [8, 64K]}}", workloads))
    given = ("--hetgpu-matrix", "nodes.yaml", "--hetgpu-inventory", "hosts.yaml", "--hetgpu-wire", "2")
    with subprocess.Popen((sys.executable, "-m", "pytest", *given), cwd=pytester.path) as running:
        run, victim = _pumping(pytester.path / "reports", running)
        docker("kill", victim)
        running.wait(300)
    assert left(run) == []
    cells = properties(pytester.path / "reports")
    lost = cells["pair-ob1-allreduce"]
    assert lost["verdict"] == "new"
    log = (pytester.path / "reports" / run / "scenarios/pair-ob1-allreduce/output.log").read_text()
    assert "hetgpu: node node1 (one on localhost) was lost: the container ended with exit code 137" in log
    assert lost["wire_told"].startswith("not known: node")
    assert "wire" not in lost
    assert cells["pair-ob1-send_recv"]["verdict"] == "ok"
    assert float(cells["pair-ob1-send_recv"]["wire"]) > 0


def _pumping(reports: Path, running: subprocess.Popen[bytes]) -> tuple[str, str]:
    """The name of the run, and the second node's container, once data flows there."""
    while running.poll() is None:
        latest = reports / "latest"
        if latest.exists():
            run = latest.resolve().name
            labels = ("--filter", f"label=hetgpu.run={run}", "--filter", "label=hetgpu.node=node1")
            for container in docker("ps", "-q", *labels).split():
                # A process serves, and one for each stream takes in or sends.
                if docker("top", container, "-eo", "pid,args").count("tcp_probe.py") > 1:
                    return run, container
        try:
            running.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("the run ended before anything was measured")
