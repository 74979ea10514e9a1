"""The cell whose run gives most information about the condition of a failure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pytest_hetgpu.analysis.boundary.certificate import gaps, neighbours
from pytest_hetgpu.analysis.boundary.observations import Observations
from pytest_hetgpu.analysis.boundary.search import Term, hypotheses, without
from pytest_hetgpu.analysis.boundary.space import Space, places

_MOST_WEIGHED = 40
_SURE = 0.9
_MISTAKEN = 0.02
_LIKELY = 0.07
_FEWEST = 3
_AGAIN = 3


def next_cell(space: Space, seen: Observations, terms: Sequence[Term], may_run: int) -> int | None:
    """Return the cell of the set `may_run` with most information about the terms; None if no cell has any.

    If a cell was seen both ways, those that passed a few times may be run again.
    """
    may_run |= seen.passing & ~seen.sure & ~space.derived
    left = seen
    for term in terms:
        seed = next(places(left.failing & term.mask), None)
        if seed is not None and (cell := _for_seed(space, left, seed, may_run)) is not None:
            return cell
        left = without(left, term.mask)
    return None


def _for_seed(space: Space, seen: Observations, seed: int, may_run: int) -> int | None:
    rivals = weighed(hypotheses(space, seen, seed))
    best, weight = rivals[0]
    if not seen.flaky and (doubtful := _doubtful(space, seen, seed, best)):
        return next(places(doubtful))
    if weight < _SURE and (groups := _parted(rivals, may_run)):
        return _nearest(space, seen, max(groups)[1])
    wanted = [gap.cells & may_run for gap in gaps(space, seen, best) if gap.cells & may_run]
    if wanted:
        return _nearest(space, seen, min(wanted, key=int.bit_count))
    return None


def _doubtful(space: Space, seen: Observations, seed: int, best: Term) -> int:
    """Return cells that passed, and would fail under a shorter condition that fails now and then.

    They are run again before the longer condition counts as found.
    """
    if len(best.literals) < 2 and not seen.failing & ~best.mask:
        return 0
    for other, weight in weighed(hypotheses(space, replace(seen, assumed_flaky=True), seed)):
        inside = other.mask & seen.passing & ~space.derived
        fails = (other.mask & seen.failing).bit_count()
        if weight < _LIKELY:
            break
        if inside and fails >= max(_FEWEST, inside.bit_count()) and not seen.failing & ~other.mask:
            return sum(1 << cell for cell in places(inside) if seen.passes[cell] < _AGAIN)
    return 0


def weighed(found: Sequence[Term]) -> list[tuple[Term, float]]:
    """Return the hypotheses with their probabilities."""
    top = found[:_MOST_WEIGHED]
    best = top[0].score
    weights = [math.exp(term.score - best) for term in top]
    total = sum(weights)
    return [(term, weight / total) for term, weight in zip(top, weights, strict=True)]


def _parted(rivals: Sequence[tuple[Term, float]], cells: int) -> list[tuple[float, int]]:
    """Return sets of cells that are inside the same hypotheses, with the information in a run of one, in nats."""
    groups = [(cells, 0.0)]
    for term, weight in rivals:
        groups = [
            (part, chance + added)
            for mask, chance in groups
            for part, added in ((mask & term.mask, weight), (mask & ~term.mask, 0.0))
            if part
        ]
    return [(_entropy(chance), mask) for mask, chance in groups if _MISTAKEN < chance < 1 - _MISTAKEN]


def _entropy(chance: float) -> float:
    return -chance * math.log(chance) - (1 - chance) * math.log(1 - chance)


def _nearest(space: Space, seen: Observations, cells: int) -> int:
    """Return the cell that differs from a failing one in the fewest axes."""
    if near := neighbours(space, seen.failing, cells):
        return next(places(near))
    failing = [space.cells[cell] for cell in places(seen.failing)]

    def distance(cell: int) -> tuple[int, int]:
        mine = space.cells[cell]
        return min(sum(mine.get(name) != one.get(name) for name in space.axes) for one in failing), cell

    return min(places(cells), key=distance)
