"""Samples of large matrices."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence

import covertable
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.planning import sampling
from pytest_hetgpu.planning.expand import expand
from pytest_hetgpu.planning.sampling import Coverage, Strategy, coverage, parse_strategy, sample, sample_matrix
from tests.planning.plan_cases import Reads

Rule = Sequence[tuple[int, int]]


def cells(sizes: Sequence[int], rules: Sequence[Rule] = ()) -> list[Scenario]:
    """The product of axes of these sizes, without the cells of a rule."""
    axes = tuple(f"a{place}" for place in range(len(sizes)))
    found = []
    for row in itertools.product(*map(range, sizes)):
        if not any(all(row[axis] == value for axis, value in rule) for rule in rules):
            values = tuple(f"v{value}" for value in row)
            found.append(Scenario("m", "-".join(values), "-".join(values), axes, values))
    return found


def held(some: Sequence[Scenario], strength: int) -> set[tuple[tuple[int, str], ...]]:
    return {pair for cell in some for pair in itertools.combinations(enumerate(cell.values), strength)}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=5),
    st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=3), max_size=3),
    st.integers(2, 3),
    st.integers(0, 9),
)
def test_every_combination_of_an_allowed_cell_is_in_the_sample(
    sizes: list[int], rules: list[list[tuple[int, int]]], strength: int, seed: int
) -> None:
    rules = [[(axis, value) for axis, value in rule if axis < len(sizes)] for rule in rules]
    allowed = cells(sizes, [rule for rule in rules if rule])
    if allowed:
        chosen = sample(allowed, Strategy(strength, seed))
        strength = min(strength, len(sizes))
        assert held(chosen, strength) == held(allowed, strength)
        assert set(chosen) <= set(allowed)
        assert list(chosen) == [cell for cell in allowed if cell in set(chosen)]


@pytest.mark.parametrize(
    ("sizes", "strength"),
    [((3, 3, 3, 3), 2), ((5, 4, 4, 3, 3, 2), 2), ((10, 6, 12, 6, 8, 3), 2), ((5, 4, 4, 3, 3, 2), 3)],
)
def test_it_is_at_most_a_tenth_larger_than_that_of_another_program(sizes: Sequence[int], strength: int) -> None:
    other = covertable.make([list(range(count)) for count in sizes], strength=strength)
    assert len(sample(cells(sizes), Strategy(strength))) <= math.ceil(1.1 * len(other))


@pytest.mark.slow
def test_a_hundred_thousand_cells(request: pytest.FixtureRequest) -> None:
    del request
    many = cells((10, 6, 12, 6, 8, 3))
    for strength, most in ((2, 134), (3, 1134)):
        began = time.process_time()
        assert len(sample(many, Strategy(strength))) <= most
        assert time.process_time() - began < 6, "twice the time that is promised"


def test_another_seed_is_another_sample_and_the_same_is_the_same() -> None:
    some = cells((4, 4, 4))
    assert sample(some, Strategy(2, 7)) == sample(some, Strategy(2, 7)) != sample(some, Strategy(2, 8))


def test_some_cells_are_always_in_it() -> None:
    some = cells((3, 3, 3))
    assert {*some[10:13]} <= {*sample(some, Strategy(2), some[10:13])}


TEXT = """\
name: demo
hardware: {cpu: , gpu: {platform: cuda}}
axes:
  placement: {one: [cpu, cpu], two: [cpu, cpu], three: [cpu, cpu]}
  transport: {ob1: {}, ucx: {}, ofi: {}}
  workload: {allreduce: {sizes: 8}, pairs: {kind: send_recv}, broadcast: {}}
exclude: [{where: {placement: two, transport: ucx}, reason: r}]
include: [{placement: two, transport: ucx, workload: pairs}]
expect: [{where: {transport: ofi}, outcome: crash, reason: r}]
"""


def test_of_a_matrix(reads: Reads) -> None:
    matrix = reads(TEXT)
    found = sample_matrix(matrix, expand(matrix), "pairwise", ("three-ob1-broadcast",))
    ids = {cell.id for cell in found.chosen}
    assert {"two-ucx-pairs", "three-ob1-broadcast"} <= ids
    assert any(cell.expectations for cell in found.chosen)
    assert not any(cell.excluded for cell in found.allowed)
    assert len(found.allowed) == 25
    assert found.text.startswith(f"{len(ids)} of 25 cells: all 27 pairs, ")


def test_numbers_in_words() -> None:
    some = cells((3, 3, 3))
    assert str(coverage(some, some, 2)) == "all 27 pairs"
    assert coverage(some, some[:1], 2) == Coverage(2, 3, 27)
    assert str(coverage(some, some[:1], 2)) == "11 % of pairs"
    assert str(Coverage(4, 1, 2)) == "50 % of combinations of 4"
    assert coverage(some, some, 4) is None


@pytest.mark.parametrize(
    ("text", "strategy"),
    [("full", Strategy()), ("pairwise", Strategy(2)), ("3-wise", Strategy(3)), (" pairwise@7", Strategy(2, 7))],
)
def test_strategies(text: str, strategy: Strategy) -> None:
    assert parse_strategy(text) == strategy


@pytest.mark.parametrize("text", ["", "all", "1-wise", "pairwise@", "pairwise@x", "9-wise", "pairwise@-1"])
def test_no_strategies(text: str) -> None:
    with pytest.raises(ValueError, match="is none of full, pairwise"):
        parse_strategy(text)


def test_too_many_cells_are_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_CELLS", 20)
    with pytest.raises(UsageError, match="m has 27 cells, more than 20: exclude some, or split the matrix"):
        sample(cells((3, 3, 3)), Strategy(2))
