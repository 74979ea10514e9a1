"""What a cell's line in the terminal says of its measurements."""

from __future__ import annotations

from pytest_hetgpu.live import best
from pytest_hetgpu.model import Kind, Verdict
from pytest_hetgpu.reporting.pairs import CellPairs


def said(**measurements: float) -> str:
    names = {name.replace("_at_", "[").replace("_", ",") + "]": value for name, value in measurements.items()}
    return best(CellPairs("cell", "matrix", Kind.PASSED, Verdict.OK, measurements=names))


def test_the_best_bandwidth_and_the_smallest_latency() -> None:
    found = said(busbw_at_8_int8=0.5, busbw_at_1024_int8=2.0, latency_at_8_int8=3.0, latency_at_1024_int8=9.0)
    assert found == "busbw 2.00 GB/s at 1K int8, latency 3.0 us at 8"


def test_without_a_bus_bandwidth_the_one_that_there_is() -> None:
    assert said(bandwidth_at_8_int8=0.5, bandwidth_at_64_int8=0.25) == "bandwidth 0.50 GB/s at 8 int8"
    names = {"bidirectional_bandwidth[64,int8]": 2.0, "message_rate[64,int8]": 9.0}
    found = best(CellPairs("cell", "matrix", Kind.PASSED, Verdict.OK, measurements=names))
    assert found == "bidirectional bandwidth 2.00 GB/s at 64 int8"


def test_in_place_is_told() -> None:
    found = said(busbw_at_64_int8=1.0, busbw_at_64_int8_in=2.0, latency_at_64_int8=3.0, latency_at_64_int8_in=2.0)
    assert found == "busbw 2.00 GB/s at 64 int8 in place, latency 2.0 us at 64"


def test_a_barrier_has_a_latency_without_a_size() -> None:
    assert said(latency_at_0_none=4.5) == "latency 4.5 us"
