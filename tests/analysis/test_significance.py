"""Exact tests against a count of every order."""

from __future__ import annotations

import itertools
import math
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis import significance
from pytest_hetgpu.analysis.significance import above, any_of, larger, rate_interval, ratio_interval

TIMES = st.floats(min_value=1e-9, max_value=1e3)


@pytest.mark.parametrize(
    ("ones", "others", "chance"),
    [
        ([6, 7, 8, 9, 10], [1, 2, 3, 4, 5], 1 / 252),
        ([5, 7, 8, 9, 10], [1, 2, 3, 4, 6], 2 / 252),
        ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], 1.0),
        ([2], [1], 1 / 2),
        ([3, 4], [1, 2], 1 / 6),
        ([], [1], 1.0),
        ([1], [], 1.0),
        # Equal times count against a difference.
        ([1, 1, 1], [1, 1, 1], 1.0),
        ([1, 2], [1, 1], 4 / 6),
    ],
)
def test_ranks(ones: list[float], others: list[float], chance: float) -> None:
    assert larger(ones, others) == pytest.approx(chance)


@given(st.lists(TIMES, min_size=1, max_size=4), st.lists(TIMES, min_size=1, max_size=4))
def test_ranks_by_counting_every_order(ones: list[float], others: list[float]) -> None:
    wins = sum(one > other for one, other in itertools.product(ones, others))
    places = range(len(ones) + len(others))
    orders = list(itertools.combinations(places, len(ones)))
    as_many = sum(sum(one > other for one in order for other in set(places) - set(order)) >= wins for order in orders)
    assert larger(ones, others) == pytest.approx(as_many / len(orders))


def test_many_values_are_no_matter() -> None:
    assert larger(range(1000, 1015), range(200)) == pytest.approx(1 / math.comb(215, 15))


@pytest.mark.parametrize(
    ("values", "chance"),
    [([2.0] * 5, 1 / 32), ([2.0] * 10, 1 / 1024), ([2, 2, 2, 2, 1], 6 / 32), ([1.0] * 3, 1.0), ([], 1.0)],
)
def test_signs(values: list[float], chance: float) -> None:
    """Count a value at the bound as not above it."""
    assert above(values, 1.0) == pytest.approx(chance)


@pytest.mark.parametrize(
    ("chances", "chance"),
    [
        ([], 1.0),
        ([0.02], 0.02),
        ([0.002, *[1.0] * 9], 0.02),
        # Many that are nearly sure weigh as one that is.
        ([0.01] * 5 + [1.0] * 5, 0.02),
        ([1.0] * 20, 1.0),
    ],
)
def test_of_several_findings_one_may_be_chance(chances: list[float], chance: float) -> None:
    assert any_of(chances) == pytest.approx(chance)


def test_the_interval_of_a_ratio_drops_what_the_rank_test_rejects() -> None:
    """Of 25 ratios of five and five values, the three lowest orders have 4 of 252: less than 2.5 %."""
    ones, others = [10.0, 11.0, 12.0, 13.0, 14.0], [1.0, 1.0, 1.0, 1.0, 1.0]
    assert ratio_interval(ones, others) == (10.0, 14.0)
    assert ratio_interval([1.0] * 4, [2.0] * 4) == (0.5, 0.5)
    assert ratio_interval([1.0] * 3, [2.0] * 4) is None
    assert ratio_interval([], [1.0]) is None


def test_the_interval_holds_the_true_ratio_as_often_as_it_promises() -> None:
    dice = random.Random(20261126)
    held = 0
    for _ in range(1000):
        ones, others = ([dice.lognormvariate(0, 0.2) * scale for _ in range(6)] for scale in (0.8, 1.0))
        low, high = ratio_interval(ones, others) or (0.0, 0.0)
        held += low <= 0.8 <= high
    assert held >= 940


def test_the_interval_of_a_rate() -> None:
    low, high = rate_interval(7, 60)
    assert (round(low, 2), round(high, 2)) == (0.06, 0.22)
    assert rate_interval(0, 10)[0] == 0.0


@pytest.mark.parametrize("shift", [0.0, 0.3, 0.6])
def test_many_values_have_the_normal_distribution_of_won_pairs(monkeypatch: pytest.MonkeyPatch, shift: float) -> None:
    dice = random.Random(1)
    ones, others = ([dice.gauss(10 + by, 1.0) for _ in range(110)] for by in (shift, 0.0))
    quick = larger(ones, others), ratio_interval(ones, others)
    monkeypatch.setattr(significance, "_MOST_PAIRS", 20_000)
    exact = larger(ones, others), ratio_interval(ones, others)
    assert quick[0] == pytest.approx(exact[0], rel=0.05, abs=1e-4)
    assert quick[1] == pytest.approx(exact[1], rel=0.002)


def test_a_thousand_samples_take_no_time() -> None:
    began = time.process_time()
    assert larger(range(1000), range(1000)) == pytest.approx(0.5, abs=0.02)
    assert ratio_interval(range(1, 1001), range(1, 1001))
    assert time.process_time() - began < 5
