"""Samples of large matrices: cells that together hold every pair, or every t values, of an allowed cell. Pure.

A greedy set cover over the expanded cells: exclusions, includes and values off the axes are exact by construction.
"""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.planning.expand import included

MOST_CELLS = 300_000
_WORDS = {"full": 0, "pairwise": 2}
_FORM = re.compile(r"(?P<word>full|pairwise|(?P<strength>[2-6])-wise)(?:@(?P<seed>\d{1,9}))?")
_NAMES = {2: "pairs", 3: "triples"}


@dataclass(frozen=True, slots=True)
class Strategy:
    """The number of values that each chosen combination has, 0 for all cells; `seed` gives another sample."""

    strength: int = 0
    seed: int = 0


def parse_strategy(text: str) -> Strategy:
    """Parse `full`, `pairwise`, `3-wise` or `pairwise@7`. Raises ValueError."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is none of full, pairwise, 3-wise, ... 6-wise (pairwise@7 is another sample)")
    return Strategy(int(found["strength"] or _WORDS[found["word"]]), int(found["seed"] or 0))


@dataclass(frozen=True, slots=True)
class Coverage:
    """The combinations of `strength` values that the chosen cells hold, of those that any allowed cell holds."""

    strength: int
    covered: int
    total: int

    def __str__(self) -> str:
        name = _NAMES.get(self.strength, f"combinations of {self.strength}")
        if self.covered == self.total:
            return f"all {self.total:,} {name}"
        return f"{100 * self.covered // self.total} % of {name}"


def sample(cells: Sequence[Scenario], strategy: Strategy, always: Collection[Scenario] = ()) -> tuple[Scenario, ...]:
    """Return the chosen cells of one matrix in their order; `always` are chosen first.

    Every combination of values that a cell holds is held by a chosen one. Raises UsageError for too many cells.
    """
    if len(cells) > MOST_CELLS:
        raise UsageError(
            f"--hetgpu-strategy: {cells[0].matrix} has {len(cells):,} cells, more than {MOST_CELLS:,}: exclude some, "
            "or split the matrix"
        )
    columns, count = _combinations(cells, min(strategy.strength, len(cells[0].axes)))
    order = list(range(len(cells)))
    random.Random(strategy.seed).shuffle(order)  # noqa: S311 - a sample, no secret
    covered = bytearray(count)
    first = {(one.matrix, one.id) for one in always}
    chosen = [place for place, cell in enumerate(cells) if (cell.matrix, cell.id) in first]
    for place in chosen:
        _cover(covered, columns, place)
    chosen += _greedy(columns, order, covered)
    return tuple(cells[place] for place in sorted(set(chosen)))


@dataclass(frozen=True)
class MatrixSample:
    """The chosen cells of a matrix, and all allowed ones."""

    matrix: str
    strategy: str
    chosen: tuple[Scenario, ...]
    allowed: tuple[Scenario, ...]

    @property
    def text(self) -> str:
        """The cells and combinations in it: `123 of 56,237 cells: all 782 pairs, 30 % of triples`."""
        strength = parse_strategy(self.strategy).strength
        parts = (coverage(self.allowed, self.chosen, one) for one in (strength, strength + 1))
        told = ", ".join(str(one) for one in parts if one)
        return f"{len(self.chosen):,} of {len(self.allowed):,} cells{': ' if told else ''}{told}"


def sample_matrix(
    matrix: Matrix, cells: Sequence[Scenario], strategy: str, failed: Collection[str] = ()
) -> MatrixSample:
    """Return a sample of the cells of a matrix. Excluded cells are no part of it.

    Always chosen are the cells that only an include gives, one cell of each expectation, and those that `failed` in an
    earlier run, by id.
    """
    allowed = tuple(cell for cell in cells if not cell.excluded)
    given = included(matrix)
    expected: dict[object, Scenario] = {}
    for cell in allowed:
        for one in cell.expectations:
            expected.setdefault(one.origin or one, cell)
    always = [cell for cell in allowed if cell.values in given or cell.id in failed]
    chosen = sample(allowed, parse_strategy(strategy), [*always, *expected.values()]) if allowed else ()
    return MatrixSample(matrix.name, strategy, chosen, allowed)


def coverage(cells: Sequence[Scenario], chosen: Sequence[Scenario], strength: int) -> Coverage | None:
    """Return how many combinations of values the chosen cells hold; None if cells have fewer values."""
    if strength > len(cells[0].axes):
        return None
    columns, count = _combinations([*chosen, *cells], strength)
    covered = bytearray(count)
    for place in range(len(chosen)):
        _cover(covered, columns, place)
    return Coverage(strength, sum(covered), count)


def _combinations(cells: Sequence[Scenario], strength: int) -> tuple[Sequence[Sequence[int]], int]:
    """Return a column for every choice of axes, and the number of combinations of values.

    A column has the combination of each cell as a number; all columns together count from 0.
    """
    values: list[list[int]] = []
    for column in zip(*(cell.values for cell in cells), strict=True):
        names: dict[str, int] = {}
        values.append([names.setdefault(name, len(names)) for name in column])
    columns: list[list[int]] = []
    count = 0
    for axes in combinations(values, strength):
        codes = axes[0]
        for other in axes[1:]:
            size = max(other) + 1
            codes = [code * size + value for code, value in zip(codes, other, strict=True)]
        numbers = {code: count + place for place, code in enumerate(dict.fromkeys(codes))}
        count += len(numbers)
        columns.append([numbers[code] for code in codes])
    return columns, count


def _cover(covered: bytearray, columns: Sequence[Sequence[int]], place: int) -> None:
    for column in columns:
        covered[column[place]] = 1


def _greedy(columns: Sequence[Sequence[int]], order: Sequence[int], covered: bytearray) -> Iterator[int]:
    """Yield the cell that covers most, until all is covered. Gains only fall, so that few are counted again."""
    left = len(covered) - sum(covered)
    heap = [(-len(columns), rank, place) for rank, place in enumerate(order)]
    while left:
        known, rank, place = heap[0]
        gain = sum(not covered[column[place]] for column in columns)
        if gain < -known:
            heapq.heapreplace(heap, (-gain, rank, place))
            continue
        heapq.heappop(heap)
        _cover(covered, columns, place)
        left -= gain
        yield place
