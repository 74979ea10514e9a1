"""A placement is measured once per run, even if its nodes fail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.cluster.bandwidth.measure import LinkBandwidths, measure
from pytest_hetgpu.cluster.cluster import Cluster, ClusterNode
from pytest_hetgpu.errors import LostNode, ProvisionError
from pytest_hetgpu.model.facts import Environment, found
from pytest_hetgpu.model.job import Fabric, Job
from pytest_hetgpu.store import environment
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.environment import NodeFacts, PlacementFacts
from pytest_hetgpu.store.journal import Journal
from tests.cluster.bandwidth.bandwidth_cases import MEASURED, SERVED, FakeMember, Says, good, job, node

PAIR = job(node(0, fabric=Fabric(netdev="ens5")), node(1, fabric=Fabric(netdev="ens6")))


def members(made: Job, *says: Says) -> dict[int, FakeMember]:
    return {one.index: FakeMember(one.index, says[one.index] if says else good) for one in made.nodes}


def test_one_node_listens_and_the_other_connects() -> None:
    nodes = members(PAIR)
    report = measure(PAIR, nodes, {}, 0.5)
    assert (report.limit.gbs, report.limit.source, report.limit.rtt) == (1.75, "pump 1, 4 streams", 40.0)
    (pair,) = report.pairs
    assert (pair.nodes, pair.address, pair.least_rtt) == (("node0", "node1"), "10.0.0.2", 30.0)
    assert not pair.loopback
    assert pair.flows[0].gbs == (1.0, 3.0, 2.0)
    assert [(one.sender, one.receiver) for one in pair.flows[:2]] == [("node0", "node1"), ("node1", "node0")]
    (serve,), (ask,) = nodes[1].asked, nodes[0].asked
    assert (serve["do"], serve["netdev"], serve["host"]) == ("serve", "ens6", "10.0.0.2")
    assert (ask["do"], ask["netdev"], ask["address"], ask["port"]) == ("measure", "ens5", "10.0.0.2", 4711)
    assert (ask["seconds"], ask["streams"], ask["iperf3"]) == (0.5, [1, 4], True)
    assert ask["token"] == serve["token"]
    assert len(ask["token"]) == 32
    assert nodes[0].argv == [("python3", "/tmp/f0/programs/tcp_probe.py")]
    assert nodes[0].swept == nodes[1].swept == 0


def test_tokens_are_new_each_time_and_on_no_command_line() -> None:
    nodes = members(PAIR)
    for _ in range(2):
        measure(PAIR, nodes, {}, 0.5)
    tokens = {one["token"] for one in nodes[0].asked}
    assert len(tokens) == 2
    assert not any(token in word for token in tokens for argv in nodes[0].argv for word in argv)


def test_where_data_passes_the_kernel_by_nothing_is_moved() -> None:
    fabric = Fabric("roce", hca="mlx5_0")
    made = job(node(0, fabric=fabric), node(1, fabric=fabric), rdma=True)
    seen = Environment({"rdma.mlx5_0:1.rate": found("100 Gb/sec (4X EDR)")})
    nodes = members(made)
    report = measure(made, nodes, {0: seen, 1: seen}, 0.5)
    assert (report.limit.gbs, report.limit.source) == (12.5, "rate of mlx5_0:1 on node0")
    assert [one.gbps for one in report.rated] == [100.0, 100.0]
    assert not nodes[0].asked


def test_one_kernel_is_told_to_be_loopback() -> None:
    nodes = members(PAIR, lambda _: {**MEASURED, "place": "b"}, good)
    assert measure(PAIR, nodes, {}, 0.5).limit.caveats == ("over loopback",)


BAD_NUMBER = {**MEASURED, "flows": [{"way": "there", "streams": 1, "rates": ["NaN"], "core": 0.1, "machine": 0.1}]}


@pytest.mark.parametrize(
    ("listens", "connects", "why"),
    [
        ({"error": "its interface ens6 has no address"}, None, "node1: its interface ens6 has no address"),
        (LostNode("node1", "the container ended"), None, "node1: the container ended"),
        (b"Welcome!\n", None, "node1: its answer cannot be read"),
        (b"", None, "node1: it printed nothing"),
        (
            {**SERVED, "port": "x"},
            None,
            "node1: its answer cannot be read (Endpoint.port: wanted an integer, found 'x')",
        ),
        (
            SERVED,
            {"error": "10.0.0.2 port 4711: timed out"},
            "node0 to node1: 10.0.0.2 port 4711: timed out (a firewall",
        ),
        (SERVED, {**MEASURED, "error": "the connection was closed"}, "node0 to node1: the connection was closed"),
        (SERVED, {"tool": "pump 1"}, "node0 to node1: nothing was measured"),
        (SERVED, BAD_NUMBER, "node0: a number in its answer cannot be one"),
        (SERVED, ProvisionError("node0", "python3 took more than 64 s"), "node0: python3 took more than 64 s"),
    ],
)
def test_what_goes_wrong_is_the_reason_and_nothing_is_left_running(listens: Any, connects: Any, why: str) -> None:
    nodes = members(PAIR, lambda _: connects, lambda _: listens)
    nodes[1].gone = "gone" if isinstance(listens, LostNode) else None
    report = measure(PAIR, nodes, {}, 0.5)
    assert report.limit.gbs is None
    assert report.limit.why.startswith(why)
    assert report.limit.why == report.pairs[0].why
    assert nodes[0].swept == nodes[1].swept == 1


def test_what_was_moved_before_trouble_is_kept() -> None:
    nodes = members(PAIR, lambda _: {**MEASURED, "error": "the connection was closed"}, good)
    assert len(measure(PAIR, nodes, {}, 0.5).pairs[0].flows) == 4


def test_a_program_that_fails_is_quoted() -> None:
    nodes = members(PAIR)
    nodes[1].returncode = 1
    assert measure(PAIR, nodes, {}, 0.5).limit.why == "node1: the pump failed there (ImportError: no pump)"


def test_a_ring_is_measured_side_by_side_and_the_slowest_pair_counts() -> None:
    made = job(*(node(index) for index in range(4)))

    def slow(request: Mapping[str, Any]) -> Mapping[str, Any]:
        flows = [{**flow, "rates": [0.5e9]} for flow in MEASURED["flows"]]
        return SERVED if request["do"] == "serve" else {**MEASURED, "flows": flows}

    report = measure(made, members(made, good, good, slow, good), {}, 0.5)
    assert {pair.nodes for pair in report.pairs} == {
        ("node0", "node1"),
        ("node1", "node2"),
        ("node2", "node3"),
        ("node3", "node0"),
    }
    assert (report.limit.gbs, report.limit.between) == (0.5, ("node2", "node3"))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path / "leases"))
    made = tmp_path / "run"
    made.mkdir()
    return made


def cluster(made: Job, nodes: Mapping[int, FakeMember]) -> Cluster:
    return Cluster(made, tuple(ClusterNode(one, nodes[one.index]) for one in made.nodes))


@pytest.mark.slow
def test_a_placement_is_measured_once_and_everybody_can_read_it(run: Path) -> None:
    nodes = members(PAIR)
    with closing(Journal(run, "main")) as journal, closing(Journal(run, "gw1")) as other:
        links = LinkBandwidths(run, journal, 0.5)
        first = links.of(cluster(PAIR, nodes))
        assert links.of(cluster(PAIR, nodes)) == first
        assert LinkBandwidths(run, other, 0.5).of(cluster(PAIR, nodes)) == first
        elsewhere = replace(PAIR, axes={"placement": "others"})
        links.of(cluster(elsewhere, nodes))
    assert len(nodes[0].asked) == 2
    kept = environment.read_link(run, "m-two")
    assert kept
    assert kept.limit == first
    lines = [json.loads(line) for line in (run / "journal/main.jsonl").read_text().splitlines()]
    assert [(line["event"], line["placement"]) for line in lines] == [("wire", "two"), ("wire", "others")]
    assert lines[0]["report"]["pairs"][0]["flows"][0]["gbs"] == [1.0, 3.0, 2.0]
    assert read_run(run).unread == {}


def test_what_was_seen_of_the_nodes_and_between_them_is_in_one_file(run: Path) -> None:
    seen = PlacementFacts("m-two", {"node0": NodeFacts("box", "10.0.0.1", Environment({"os": found("Debian")}))})
    environment.write(run, seen)
    with closing(Journal(run, "main")) as journal:
        LinkBandwidths(run, journal, 0.5).of(cluster(PAIR, members(PAIR)))
    environment.write(run, seen)
    (both,) = environment.read_all(run)
    assert both.nodes == seen.nodes
    assert both.link
    assert both.link.limit.gbs == 1.75


def test_a_placement_that_lost_a_node_meanwhile_is_measured_once_more(run: Path) -> None:
    lost = members(PAIR, good, lambda _: LostNode("node1", "the container ended"))
    lost[1].gone = "the container ended"
    with closing(Journal(run, "main")) as journal:
        links = LinkBandwidths(run, journal, 0.5)
        assert links.of(cluster(PAIR, lost)).why == "node1: the container ended"
        assert links.of(cluster(PAIR, members(PAIR))).gbs == 1.75


def test_a_port_that_is_blocked_is_blocked_for_the_next_cell_too(run: Path) -> None:
    nodes = members(PAIR, lambda _: {"error": "10.0.0.2 port 4711: timed out"}, good)
    with closing(Journal(run, "main")) as journal:
        links = LinkBandwidths(run, journal, 0.5)
        assert links.of(cluster(PAIR, nodes)) == links.of(cluster(PAIR, nodes))
    assert len(nodes[0].asked) == 1
