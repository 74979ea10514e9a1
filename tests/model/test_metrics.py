"""Latency and bandwidths by their definitions."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.extensions.workloads.base import SweepWorkload, Workload
from pytest_hetgpu.model.metrics import has_bandwidth, link_fraction, measurements, of_operation
from pytest_hetgpu.model.outcome import LinkBandwidth
from pytest_hetgpu.model.records import MessagePoint, Row

MEBI = 1 << 20


def measured(operation: str, ranks: int, size: int = MEBI, seconds: float = 1e-3) -> dict[str, float]:
    rows = [Row(operation, MessagePoint(size, "float32"), ranks, 20, seconds)]
    return {item.metric: item.value for item in measurements(rows)}


@pytest.mark.parametrize(
    ("operation", "factor"),
    [
        ("allreduce", 2 * 3 / 4),
        ("all_reduce", 2 * 3 / 4),
        ("all_gather", 3 / 4),
        ("allgather", 3 / 4),
        ("reduce_scatter", 3 / 4),
        ("alltoall", 3 / 4),
        ("gather", 3 / 4),
        ("scatter", 3 / 4),
        ("broadcast", 1.0),
        ("bcast", 1.0),
        ("reduce", 1.0),
        ("send_recv", 1.0),
        ("bidirectional_send_recv", 1.0),
        ("alltoallv", 3 / 4),
    ],
)
def test_definitions_for_four_ranks(operation: str, factor: float) -> None:
    """A size is the size that nccl-tests prints: the total of all blocks if ranks share them."""
    found = measured(operation, ranks=4)
    assert found["latency"] == pytest.approx(1000.0)
    assert found["algbw"] == pytest.approx(MEBI / 1e-3 / 1e9)
    assert found["busbw"] == pytest.approx(MEBI / 1e-3 / 1e9 * factor)
    alone = measured(operation, ranks=1)
    assert alone["algbw"] == found["algbw"]
    assert alone["busbw"] == 0.0


def swept() -> list[str]:
    kinds = {kind: find("workloads", kind, Workload) for kind in names("workloads")}  # type: ignore[type-abstract]
    return [kind for kind, found in kinds.items() if issubclass(found, SweepWorkload) and found.measured]


@pytest.mark.parametrize("kind", swept())
def test_every_workload_that_is_swept_and_timed_has_a_definition(kind: str) -> None:
    operation = find("workloads", kind, Workload).operation  # type: ignore[type-abstract]
    assert measured(operation, ranks=2).keys() == {"latency", "algbw", "busbw"}


def test_a_barrier_has_a_latency_only() -> None:
    (only,) = measurements([Row("barrier", MessagePoint(0, "none"), 2, 20, 1e-6)])
    assert (only.name, only.unit) == ("latency[0,none]", "us")
    assert only.value == pytest.approx(1.0)


def test_in_place_is_another_point() -> None:
    rows = [Row("reduce", MessagePoint(8, "int8", place), 2, 20, 1e-6) for place in ("", "in")]
    assert [item.name for item in measurements(rows)][::3] == ["busbw[8,int8]", "busbw[8,int8,in]"]
    assert len(measurements(rows)) == 6


def test_an_operation_without_a_definition_has_a_latency_only() -> None:
    assert measured("guarded_send", ranks=2) == {"latency": pytest.approx(1000.0)}


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_is_none_measures_nothing(seconds: float) -> None:
    assert measured("allreduce", ranks=2, seconds=seconds) == {}


def test_names_units_order_and_repeats() -> None:
    rows = [
        Row("allreduce", MessagePoint(size, "float32"), 2, 20, seconds)
        for size, seconds in ((8, 1e-6), (16, 2e-6), (8, 3e-6))
    ]
    found = measurements(rows)
    assert [item.name for item in found[:4]] == [
        "busbw[8,float32]",
        "algbw[8,float32]",
        "latency[8,float32]",
        "busbw[16,float32]",
    ]
    assert [item.unit for item in found[:3]] == ["GB/s", "GB/s", "us"]
    assert found[2].value == pytest.approx(3.0)
    assert len(found) == 6


def test_a_bus_bandwidth_as_a_fraction_of_what_the_wire_carries() -> None:
    rows = [Row("all_gather", MessagePoint(MEBI, "float32"), 4, 20, 1e-3)]
    fractions = {item.metric: link_fraction(item, LinkBandwidth(2.0)) for item in measurements(rows)}
    assert fractions == {"latency": None, "algbw": None, "busbw": pytest.approx(MEBI / 1e-3 / 1e9 * 0.75 / 2.0)}


@pytest.mark.parametrize("link", [None, LinkBandwidth(why="timed out"), LinkBandwidth(0.0)])
def test_without_a_limit_there_is_no_fraction(link: LinkBandwidth | None) -> None:
    rows = [Row("allreduce", MessagePoint(MEBI, "float32"), 4, 20, 1e-3)]
    assert {link_fraction(item, link) for item in measurements(rows)} == {None}


def test_where_nothing_moved_there_is_no_fraction() -> None:
    rows = [
        Row("allreduce", MessagePoint(MEBI, "float32"), 1, 20, 1e-3),
        Row("allreduce", MessagePoint(0, "int8"), 2, 20, 1e-3),
    ]
    assert {link_fraction(item, LinkBandwidth(1.0)) for item in measurements(rows)} == {None}


def test_which_operations_have_a_bandwidth() -> None:
    assert has_bandwidth("allreduce")
    assert has_bandwidth("bidirectional_send_recv")
    assert not has_bandwidth("barrier")
    assert not has_bandwidth("guarded_send")


def repeated(*seconds: float, ranks: int = 2) -> list[Row]:
    return [
        Row("allreduce", MessagePoint(MEBI, "float32"), ranks, 20, one, repeat) for repeat, one in enumerate(seconds)
    ]


def test_of_several_repeats_the_median_counts_without_outliers() -> None:
    busbw, algbw, latency = measurements(repeated(1e-3, 1.02e-3, 9e-3, 1.01e-3, 0.99e-3))
    assert latency.value == pytest.approx(1005.0)
    assert latency.samples == pytest.approx((1000.0, 1020.0, 9000.0, 1010.0, 990.0))
    assert busbw.value == pytest.approx(MEBI / 1.005e-3 / 1e9, rel=1e-4)
    assert algbw.samples == busbw.samples
    assert len(busbw.samples) == 5


def test_a_single_repeat_has_no_samples() -> None:
    assert {item.samples for item in measurements(repeated(1e-3))} == {()}


def test_repeats_of_other_ranks_are_no_samples() -> None:
    """Rows of another number of ranks are no repeats; the last one counts."""
    rows = [*repeated(1e-3, 2e-3), *repeated(5e-3, 7e-3, ranks=4)]
    latency = measurements(rows)[-1]
    assert latency.ranks == 4
    assert latency.samples == pytest.approx((5000.0, 7000.0))


def test_who_has_a_bandwidth() -> None:
    assert has_bandwidth("allreduce")
    assert not has_bandwidth("allreduce", ranks=1)
    assert not has_bandwidth("barrier")
    assert of_operation("barrier") == of_operation("allreduce", ranks=1) == {"latency": "us"}
    assert list(of_operation("allreduce")) == ["busbw", "algbw", "latency"]
