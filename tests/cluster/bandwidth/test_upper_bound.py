"""One limit of all that was found between the nodes of a placement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.cluster.bandwidth.upper_bound import by_pairs, by_rate
from pytest_hetgpu.model.bandwidth import LineRate, LinkMeasurement
from pytest_hetgpu.model.bandwidth_text import describe_link
from pytest_hetgpu.model.outcome import LinkBandwidth
from tests.cluster.bandwidth.bandwidth_cases import flow, job, node

PAIR = LinkMeasurement(
    ("node0", "node1"),
    tool="pump 1",
    flows=(
        flow(0, 1, 1.0, 3.0, 2.0),
        flow(1, 0, 1.5),
        flow(0, 1, 1.0, streams=4),
        flow(1, 0, 1.75, streams=4),
    ),
    rtt=40.0,
)


def test_the_slower_direction_with_as_many_streams_as_are_best_for_it() -> None:
    found = by_pairs([PAIR])
    assert found == LinkBandwidth(1.75, "pump 1, 4 streams", ("node1", "node0"), 40.0)
    assert describe_link(found) == "pump 1, 4 streams, node1 to node0, round trip 40 us"


def test_the_slowest_pair_of_several() -> None:
    slow = replace(PAIR, nodes=("node1", "node2"), flows=(flow(1, 2, 0.5), flow(2, 1, 9.0)), tool="iperf3 3.12", rtt=9)
    assert by_pairs([PAIR, slow]) == LinkBandwidth(0.5, "iperf3 3.12, 1 stream", ("node1", "node2"), 9)


def test_of_a_pair_that_was_not_measured_nobody_knows_whether_it_is_the_slowest() -> None:
    found = by_pairs([PAIR, replace(PAIR, flows=(), why="node1 to node2: timed out")])
    assert found == LinkBandwidth(why="node1 to node2: timed out")
    assert describe_link(found) == "not known: node1 to node2: timed out"


def test_nothing_between_the_nodes_is_said() -> None:
    found = by_pairs([])
    assert found.gbs is None
    assert "nothing is between them" in found.why


def test_a_way_without_data_is_no_limit_of_nothing() -> None:
    found = by_pairs([replace(PAIR, flows=(flow(0, 1, 0.0, 0.0), flow(1, 0, 1.0)))])
    assert found == LinkBandwidth(why="no data came from node0 to node1 in time")


def test_what_casts_doubt_on_it_is_told() -> None:
    busy = replace(PAIR, loopback=True, flows=(flow(0, 1, 1.0, core=0.97, machine=0.5), flow(1, 0, 2.0, machine=1.0)))
    assert by_pairs([busy]).caveats == ("over loopback", "a stream took 97 % of a core")
    shared = replace(busy, loopback=False, flows=(flow(0, 1, 1.0, core=0.3, machine=1.0),))
    assert describe_link(by_pairs([shared])).endswith(", round trip 40 us, 100 % of all cores were busy")


HCAS = (LineRate("node0", 100.0, "rate of mlx5_0:1"), LineRate("node1", 25.0, "rate of mlx5_2:1"))


def test_past_the_kernel_the_slowest_adapter_counts() -> None:
    two = (node(0), node(1))
    assert by_rate(job(*two, rdma=True), HCAS) == LinkBandwidth(3.125, "rate of mlx5_2:1 on node1")


@pytest.mark.parametrize(("rdma", "rated"), [(False, HCAS), (True, HCAS[:1]), (True, ())])
def test_else_the_way_is_measured(rdma: bool, rated: tuple[LineRate, ...]) -> None:
    assert by_rate(job(node(0), node(1), rdma=rdma), rated) is None


@pytest.mark.parametrize(("gbs", "median"), [((), 0.0), ((3.0,), 3.0), ((4.0, 1.0), 2.5), ((9.0, 1.0, 2.0), 2.0)])
def test_the_middle_of_the_intervals_counts(gbs: tuple[float, ...], median: float) -> None:
    assert flow(0, 1, *gbs).median == median
