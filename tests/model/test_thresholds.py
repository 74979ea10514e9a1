"""Values within the tolerance."""

from __future__ import annotations

import pytest

from pytest_hetgpu.model.thresholds import Threshold


@pytest.mark.parametrize(
    ("metric", "tolerance", "worst"),
    [("busbw", 0.2, 1.25), ("algbw", 0.5, 2.0), ("latency", 0.2, 1.2), ("busbw", 0.0, 1.0), ("latency", 0.0, 1.0)],
)
def test_less_of_a_bandwidth_more_of_a_latency(metric: str, tolerance: float, worst: float) -> None:
    """A fifth less bandwidth is a quarter more time."""
    assert Threshold(metric, "", (1.0,), tolerance).worst(1.0) == pytest.approx(worst)
    assert Threshold(metric, "", (1.0,), tolerance).worst(3.0) == pytest.approx(3 * worst)
