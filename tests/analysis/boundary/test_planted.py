"""Planted failures: from a sample and some further cells to exactly their condition."""

from __future__ import annotations

import random
import statistics

import pytest

from tests.analysis.boundary.planted import Run, condition, found, mask_of, pairwise, space

FEW, MANY = 3, 20


def planted(name: str, kinds: tuple[str, ...], seed: int) -> tuple[bool, bool, int] | None:
    """Whether the condition is exact, whether it is established, and the further cells; None if no cell failed."""
    chance = random.Random(f"{name}{seed}")
    cells = space(chance)
    mask = mask_of(cells, condition(cells, chance, kinds))
    run = Run(cells, lambda cell: bool(mask >> cell & 1))
    for cell in pairwise(cells, chance):
        run.run(cell)
    if not any(any(ends) for ends in run.seen.values()):
        return None
    named, established, further = found(run)
    return named == mask, established, further


def check(name: str, kinds: tuple[str, ...], count: int, most: float) -> None:
    results = [one for seed in range(count) if (one := planted(name, kinds, seed)) is not None]
    assert results
    assert [seed for seed, (exact, established, _) in enumerate(results) if established and not exact] == []
    assert all(exact for exact, _, _ in results)
    assert statistics.mean(further for _, _, further in results) <= most


LINES = [
    pytest.param(("=",), 2, id="1"),
    pytest.param(("=", "="), 6, id="2"),
    pytest.param(("=", "=", "="), 16, id="3"),
    pytest.param(("=", ">="), 8, id="threshold"),
    pytest.param(("=", "range"), 8, id="range"),
    pytest.param(("=", "!="), 6, id="negation"),
    pytest.param(("=", "in"), 6, id="set"),
]


@pytest.mark.parametrize(("kinds", "most"), LINES)
def test_some(kinds: tuple[str, ...], most: float, request: pytest.FixtureRequest) -> None:
    check(request.node.callspec.id, kinds, FEW, most)


@pytest.mark.slow
@pytest.mark.parametrize(("kinds", "most"), LINES)
def test_many(kinds: tuple[str, ...], most: float, request: pytest.FixtureRequest) -> None:
    check(request.node.callspec.id, kinds, MANY, most)
