"""Values within the tolerance."""

from __future__ import annotations

import pytest

from pytest_hetgpu.model.quantities import direction
from pytest_hetgpu.model.thresholds import Threshold


@pytest.mark.parametrize(
    ("unit", "tolerance", "worst"),
    [("GB/s", 0.2, 1.25), ("1/s", 0.5, 2.0), ("us", 0.2, 1.2), ("GB/s", 0.0, 1.0), ("us", 0.0, 1.0)],
)
def test_less_of_a_bandwidth_more_of_a_latency(unit: str, tolerance: float, worst: float) -> None:
    """A fifth less bandwidth is a quarter more time."""
    limit = Threshold("x", "", (1.0,), unit, direction(unit), tolerance)
    assert limit.worst(1.0) == pytest.approx(worst)
    assert limit.worst(3.0) == pytest.approx(3 * worst)
    assert limit.value(limit.cost(8.0)) == pytest.approx(8.0)
