"""References of the matrix as limits of single points."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_hetgpu.model.job import Fabric, Hardware, Node, Requirements
from pytest_hetgpu.model.outcome import LinkBandwidth
from pytest_hetgpu.model.quantities import HIGHER, LOWER
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.thresholds import EVERY, PerformanceReference, Threshold
from pytest_hetgpu.planning.references import from_cells, from_link, from_matrix, merged
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
    assert limit.values == (1.2,)


def test_one_number_for_every_size_from_some_on() -> None:
    found = from_matrix([PerformanceReference(ORIGIN, "latency", {0: 15.0})], demand(), nodes(10))
    assert {point: limits[0].values for point, limits in found.items()} == dict.fromkeys(
        (SMALL, LARGE, PLACED), (15.0,)
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
    assert (limit.values, limit.unit, limit.better) == ((0.75,), "GB/s", HIGHER)


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
    assert limit.values == pytest.approx((0.587,))


@pytest.mark.parametrize(
    ("link", "why"),
    [
        (LinkBandwidth(why="a firewall blocks port 41"), "a firewall blocks port 41"),
        (None, "nothing was measured between its nodes"),
    ],
)
def test_an_unknown_link(link: LinkBandwidth | None, why: str) -> None:
    found = from_link([PerformanceReference(ORIGIN, of="wire", fraction=0.5, min_size=1 << 20)], demand(), link)
    assert found[LARGE] == (Threshold("busbw", f"0.5 of the wire ({ORIGIN})", (), "GB/s", HIGHER, lacks=why),)


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
    assert (limit.values, limit.lacks) == ((), "allreduce of 1 ranks has no busbw")


def test_another_cells_times_are_measured_ones() -> None:
    other = PerformanceReference("m.yaml:7", of="cell", cell="two-ob1-allreduce", fraction=0.8, tolerance=0.05)
    numbers = [
        Measurement("busbw", 0.2, "GB/s", SMALL, 2),
        Measurement("latency", 5.0, "us", SMALL, 2, (4.0, 6.0)),
        Measurement("busbw", 1.0, "GB/s", LARGE, 2),
        Measurement("latency", 1000.0, "us", LARGE, 2),
        Measurement("busbw", 2.0, "GB/s", PLACED, 2),
        Measurement("loss", 0.5, "", LARGE, 2),
    ]
    found = from_cells(
        [other, PerformanceReference(ORIGIN, "busbw", {0: 1.0})], demand(), {"two-ob1-allreduce": numbers}.__getitem__
    )
    (small,), (large,) = found[SMALL], found[LARGE]
    source = "0.8 of two-ob1-allreduce (m.yaml:7)"
    assert (small.metric, large.metric, small.source, small.tolerance) == ("latency", "busbw", source, 0.05)
    assert small.values == pytest.approx((5.0, 7.5))
    assert large.values == pytest.approx((0.8,))
    assert (small.better, large.better) == (LOWER, HIGHER)
    assert from_matrix([other], demand(), nodes(10)) == {}


def test_another_cell_that_has_no_numbers() -> None:
    other = PerformanceReference("m.yaml:7", of="cell", cell="c", min_size=1 << 20)
    found = from_cells([other], demand(), lambda _: "it failed (crash)")
    assert {limits[0].lacks for limits in found.values()} == {"it failed (crash)"}
    assert found.keys() == {LARGE, PLACED}
    found = from_cells([other], demand(), lambda _: [Measurement("busbw", 1.0, "GB/s", LARGE, 2)])
    assert found[PLACED] == (Threshold("", "c (m.yaml:7)", lacks="it was not measured there"),)


def test_a_program_whose_points_only_its_run_shows() -> None:
    own = demand(points=())
    found = from_matrix([PerformanceReference(ORIGIN, "loop", {0: 1.5, 8: 2.0}, min_size=4)], own, nodes(10))
    assert {point: (limit.metric, limit.values, limit.min_size) for point, (limit,) in found.items()} == {
        EVERY: ("loop", (1.5,), 4),
        MessagePoint(8, ""): ("loop", (2.0,), 4),
    }


def test_another_cells_numbers_of_ones_own_program() -> None:
    here = MessagePoint(0, "none")
    numbers = [
        Measurement("loop", 2.0, "s", here, 0),
        Measurement("rate", 30.0, "samples/s", here, 0),
        Measurement("energy", 7.0, "Ry", here, 0, better=LOWER),
        Measurement("temperature", 7.0, "K", here, 0),
    ]
    other = PerformanceReference("m.yaml:7", of="cell", cell="c", fraction=0.5)
    (limits,) = from_cells([other], demand(points=()), lambda _: numbers).values()
    assert {limit.metric: (limit.values, limit.unit, limit.better) for limit in limits} == {
        "loop": ((4.0,), "s", LOWER),
        "rate": ((15.0,), "samples/s", HIGHER),
        "energy": ((14.0,), "Ry", LOWER),
    }
    only = PerformanceReference("m.yaml:7", "rate", of="cell", cell="c")
    assert [one.metric for (one,) in from_cells([only], demand(points=()), lambda _: numbers).values()] == ["rate"]
    assert from_cells([other], demand(points=()), lambda _: "it failed")[EVERY][0].lacks == "it failed"
