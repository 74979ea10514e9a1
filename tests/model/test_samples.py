"""Several numbers become one with its spread."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.model.sample import Sample, sample, usable


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([1.5], Sample(1.5, 1.5, 1.5)),
        ([3.0, 1.0], Sample(2.0, 1.0, 3.0, 2)),
        ([1.0, 9.0, 2.0], Sample(2.0, 1.0, 9.0, 3)),
        ([1.0, 1.1, 1.2, 9.0], Sample(1.1, 1.0, 1.2, 3, outliers=1)),
        ([1.0] * 9 + [0.5], Sample(1.0, 1.0, 1.0, 9, outliers=1)),
        ([math.nan, 1.0, -1.0, math.inf], Sample(1.0, 1.0, 1.0)),
        ([0.0, 0.0], Sample(0.0, 0.0, 0.0, 2)),
        ([1.7e308] * 5, Sample(1.7e308, 1.7e308, 1.7e308, 5)),
    ],
)
def test_median_spread_and_outliers(values: list[float], found: Sample) -> None:
    assert sample(values) == found


@pytest.mark.parametrize("values", [[], [math.nan], [-1.0, math.inf, -math.inf]])
def test_no_number_at_all(values: list[float]) -> None:
    assert sample(values) is None


@given(st.lists(st.floats(), max_size=12))
def test_whatever_the_numbers_are(values: list[float]) -> None:
    found = sample(values)
    fit = [value for value in values if usable(value)]
    if found is None:
        assert not fit
        return
    assert 0 <= found.low <= found.middle <= found.high < math.inf
    assert found.values + found.outliers == len(fit)
    assert found.values > found.outliers
