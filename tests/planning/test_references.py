"""References of the matrix as limits of single points."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_hetgpu.model.job import Fabric, Hardware, Node, Requirements
from pytest_hetgpu.model.metrics import from_seconds, to_seconds
from pytest_hetgpu.model.outcome import LinkBandwidth
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.thresholds import PerformanceReference, Threshold
from pytest_hetgpu.planning.references import Times, from_cells, from_link, from_matrix, merged, metric_of
from tests.analysis.judges.judge_cases import job

SMALL, LARGE, PLACED = (
    MessagePoint(1024, "float32"),
    MessagePoint(1 << 20, "float32"),
    MessagePoint(1 << 20, "float32", "in"),
)
ORIGIN = "aws.yaml:14"


def demand(**changes: Any) -> Requirements:
    return job(**{"points": (SMALL, LARGE, PLACED), **changes}).demand


def nodes(*speeds: float) -> tuple[Node, ...]:
    kinds = (Hardware(f"kind{speed:g}", fabric=Fabric(gbps=speed)) for speed in speeds)
    return tuple(Node(index, kind, "localhost", 1) for index, kind in enumerate(kinds))


def test_numbers_by_size_hold_for_every_type_and_place() -> None:
    found = from_matrix([PerformanceReference(ORIGIN, "busbw", {1 << 20: 1.2}, tolerance=0.2)], demand(), nodes(10))
    assert found.keys() == {LARGE, PLACED}
    (limit,) = found[LARGE]
    assert (limit.metric, limit.source, limit.tolerance, limit.owed) == ("busbw", ORIGIN, 0.2, True)
    assert from_seconds("busbw", limit.seconds[0], "allreduce", 1 << 20, 2) == pytest.approx(1.2)


def test_one_number_for_every_size_from_some_on() -> None:
    found = from_matrix([PerformanceReference(ORIGIN, "latency", {0: 15.0})], demand(), nodes(10))
    assert {point: limits[0].seconds[0] for point, limits in found.items()} == pytest.approx(
        dict.fromkeys((SMALL, LARGE, PLACED), 15e-6)
    )
    assert from_matrix(
        [PerformanceReference(ORIGIN, "latency", {0: 15.0}, min_size=2048)], demand(), nodes(10)
    ).keys() == {
        LARGE,
        PLACED,
    }


def test_a_fraction_of_the_slowest_fabric() -> None:
    found = from_matrix(
        [PerformanceReference(ORIGIN, of="fabric", fraction=0.6, min_size=1 << 20)], demand(), nodes(100, 10)
    )
    assert found.keys() == {LARGE, PLACED}
    (limit,) = found[LARGE]
    assert (limit.metric, limit.source) == ("busbw", f"0.6 of the 10 Gbit/s of kind10 ({ORIGIN})")
    assert limit.seconds[0] == pytest.approx(to_seconds("busbw", 0.75, "allreduce", 1 << 20, 2))


def test_a_fraction_of_what_was_measured_between_the_nodes() -> None:
    wanted = [
        PerformanceReference(ORIGIN, of="wire", fraction=0.5, min_size=1 << 20),
        PerformanceReference(ORIGIN, "busbw", {0: 1.0}),
    ]
    assert {
        limit.metric for limits in from_matrix(wanted[:1], demand(), nodes(10)).values() for limit in limits
    } == set()
    found = from_link(wanted, demand(), LinkBandwidth(1.174, "pump 1, 4 streams"))
    assert found.keys() == {LARGE, PLACED}
    (limit,) = found[LARGE]
    assert (limit.metric, limit.source) == ("busbw", f"0.5 of the 1.17 GB/s of the wire ({ORIGIN})")
    assert from_seconds("busbw", limit.seconds[0], "allreduce", 1 << 20, 2) == pytest.approx(0.587)


@pytest.mark.parametrize(
    ("link", "why"),
    [
        (LinkBandwidth(why="a firewall blocks port 41"), "a firewall blocks port 41"),
        (None, "nothing was measured between its nodes"),
    ],
)
def test_an_unknown_link(link: LinkBandwidth | None, why: str) -> None:
    found = from_link([PerformanceReference(ORIGIN, of="wire", fraction=0.5, min_size=1 << 20)], demand(), link)
    assert found[LARGE] == (Threshold("busbw", f"0.5 of the wire ({ORIGIN})", lacks=why),)


def test_several_references_hold_side_by_side() -> None:
    both = [
        PerformanceReference(ORIGIN, "busbw", {0: 1.0}),
        PerformanceReference("aws.yaml:20", "latency", {1024: 9.0}),
    ]
    found = from_matrix(both, demand(), nodes(10))
    assert [limit.source for limit in found[SMALL]] == [ORIGIN, "aws.yaml:20"]
    assert [limit.source for limit in found[LARGE]] == [ORIGIN]
    assert merged({}, found, {SMALL: (Threshold("busbw", "more"),)})[SMALL][-1].source == "more"


def test_a_bandwidth_that_so_many_ranks_do_not_have() -> None:
    (limit,) = from_matrix([PerformanceReference(ORIGIN, "busbw", {0: 1.0})], demand(ranks=1), nodes(10))[LARGE]
    assert (limit.seconds, limit.lacks) == ((), "allreduce of 1 ranks has no busbw")


def test_another_cells_times_are_measured_ones() -> None:
    other = PerformanceReference("m.yaml:7", of="cell", cell="two-ob1-allreduce", fraction=0.8, tolerance=0.05)
    times: Times = {SMALL: (4e-6, 6e-6), LARGE: (1e-3,), PLACED: (2e-3,)}
    found = from_cells(
        [other, PerformanceReference(ORIGIN, "busbw", {0: 1.0})], demand(), {"two-ob1-allreduce": times}.__getitem__
    )
    (small,), (large,) = found[SMALL], found[LARGE]
    source = "0.8 of two-ob1-allreduce (m.yaml:7)"
    assert (small.metric, large.metric, small.source, small.tolerance) == ("latency", "busbw", source, 0.05)
    assert small.seconds == pytest.approx((5e-6, 7.5e-6))
    assert large.seconds == pytest.approx((1.25e-3,))
    assert from_matrix([other], demand(), nodes(10)) == {}


def test_another_cell_that_has_no_numbers() -> None:
    other = PerformanceReference("m.yaml:7", of="cell", cell="c", min_size=1 << 20)
    found = from_cells([other], demand(), lambda _: "it failed (crash)")
    assert {limits[0].lacks for limits in found.values()} == {"it failed (crash)"}
    assert found.keys() == {LARGE, PLACED}
    found = from_cells([other], demand(), lambda _: {LARGE: (1.0,)})
    assert found[PLACED] == (Threshold("busbw", "c (m.yaml:7)", lacks="it was not measured there"),)


@pytest.mark.parametrize(
    ("changes", "point", "metric"),
    [
        ({}, LARGE, "busbw"),
        ({}, SMALL, "latency"),
        ({"ranks": 1}, LARGE, "latency"),
        ({"operation": "barrier"}, MessagePoint(0, "none"), "latency"),
    ],
)
def test_in_what_a_time_is_told(changes: dict[str, Any], point: MessagePoint, metric: str) -> None:
    assert metric_of(replace(demand(), **changes), point) == metric
