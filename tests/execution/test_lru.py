"""What is kept of cells that are over."""

from __future__ import annotations

from pytest_hetgpu.execution.lru import MOST, LruCache
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict


def test_the_last_cells_are_kept_and_no_more() -> None:
    known = LruCache()
    for number in range(3 * MOST):
        known["m", str(number)] = Outcome(Kind.PASSED, Verdict.OK)
        known["m", "first"] = Outcome(Kind.PASSED, Verdict.OK)
    assert len(known) == MOST
    assert ("m", "first") in known
    assert ("m", str(3 * MOST - 1)) in known
    assert ("m", "0") not in known
