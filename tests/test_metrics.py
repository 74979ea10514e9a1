"""Latency and bandwidths by their definitions."""

from __future__ import annotations

import pytest

from pytest_hetgpu.evidence import Row
from pytest_hetgpu.metrics import measurements
from pytest_hetgpu.model import Point

MEBI = 1 << 20


def measured(operation: str, ranks: int, size: int = MEBI, seconds: float = 1e-3) -> dict[str, float]:
    rows = [Row(operation, Point(size, "float32"), ranks, 20, seconds)]
    return {item.metric: item.value for item in measurements(rows)}


@pytest.mark.parametrize(
    ("operation", "bytes_moved", "factor"),
    [
        ("allreduce", MEBI, 2 * 3 / 4),
        ("all_reduce", MEBI, 2 * 3 / 4),
        ("all_gather", 4 * MEBI, 3 / 4),
        ("reduce_scatter", 4 * MEBI, 3 / 4),
        ("alltoall", 4 * MEBI, 3 / 4),
        ("gather", 4 * MEBI, 3 / 4),
        ("scatter", 4 * MEBI, 3 / 4),
        ("broadcast", MEBI, 1.0),
        ("bcast", MEBI, 1.0),
        ("reduce", MEBI, 1.0),
        ("send_recv", MEBI, 1.0),
        ("alltoallv", MEBI, 3 / 4),
    ],
)
def test_definitions_for_four_ranks(operation: str, bytes_moved: int, factor: float) -> None:
    found = measured(operation, ranks=4)
    assert found["latency"] == pytest.approx(1000.0)
    assert found["algbw"] == pytest.approx(bytes_moved / 1e-3 / 1e9)
    assert found["busbw"] == pytest.approx(bytes_moved / 1e-3 / 1e9 * factor)


@pytest.mark.parametrize("operation", ["allreduce", "broadcast", "all_gather", "send_recv"])
def test_one_rank_has_no_bus_bandwidth(operation: str) -> None:
    assert measured(operation, ranks=1)["busbw"] == 0.0


def test_an_operation_without_a_definition_has_a_latency_only() -> None:
    assert measured("guarded_send", ranks=2) == {"latency": pytest.approx(1000.0)}


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_is_none_measures_nothing(seconds: float) -> None:
    assert measured("allreduce", ranks=2, seconds=seconds) == {}


def test_names_units_order_and_repeats() -> None:
    rows = [
        Row("allreduce", Point(size, "float32"), 2, 20, seconds) for size, seconds in ((8, 1e-6), (16, 2e-6), (8, 3e-6))
    ]
    found = measurements(rows)
    assert [item.name for item in found[:4]] == [
        "latency[8,float32]",
        "algbw[8,float32]",
        "busbw[8,float32]",
        "latency[16,float32]",
    ]
    assert [item.unit for item in found[:3]] == ["us", "GB/s", "GB/s"]
    assert found[0].value == pytest.approx(3.0)
    assert len(found) == 6
