"""The time of a whole run."""

from __future__ import annotations

import math

from pytest_hetgpu.execution.budget import UNLIMITED, Budget


def test_it_is_spent_at_its_deadline_and_says_so() -> None:
    now = 100.0
    budget = Budget.of(60.0, lambda: now)
    assert (budget.left, budget.spent) == (60.0, "")
    now = 159.5
    assert budget.left == 0.5
    now = 1000.0
    assert budget.left == 0.0
    assert budget.spent == "the run's time was spent (--hetgpu-budget 60)"


def test_without_one_there_is_always_time() -> None:
    assert Budget.of(None) == UNLIMITED
    assert UNLIMITED.left == math.inf
    assert UNLIMITED.spent == ""
