"""Search for the shortest conjunction of literals that separates failing cells from others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pytest_hetgpu.analysis.boundary.observations import Observations
from pytest_hetgpu.analysis.boundary.space import Candidate, Relation, Space, places

DEEPEST = 3
MOST_TERMS = 3
_MOST_SEEDS = 5
_MOST_KEPT = 400
# Of conditions of one length, an equality is the plainer one.
_ODD = {
    Relation.EQUAL: 0.0,
    Relation.AT_LEAST: 0.1,
    Relation.AT_MOST: 0.1,
    Relation.ONE_OF: 0.2,
    Relation.NOT: 0.3,
}


@dataclass(frozen=True, slots=True)
class Term:
    """A conjunction of literals, the cells for which it holds, and its score: the higher, the likelier."""

    literals: tuple[Candidate, ...]
    mask: int
    score: float


def best_terms(space: Space, seen: Observations, deepest: int = DEEPEST) -> tuple[Term, ...]:
    """Return the terms of the condition; together they hold for all failing cells if three terms can.

    Each term explains failing cells, which then do not count for the next.
    """
    terms: list[Term] = []
    left = seen
    while left.failing and len(terms) < MOST_TERMS:
        found = max(
            (hypotheses(space, left, seed, deepest)[0] for seed in _seeds(left.failing)), key=lambda term: term.score
        )
        terms.append(found)
        left = without(left, found.mask)
    return tuple(terms)


def without(seen: Observations, mask: int) -> Observations:
    """Return the observations without the failing cells of a set."""
    explained = seen.failing & mask
    return Observations(
        {cell: count for cell, count in seen.fails.items() if not explained >> cell & 1},
        {cell: count for cell, count in seen.passes.items() if not explained >> cell & 1},
    )


def hypotheses(space: Space, seen: Observations, seed: int, deepest: int = DEEPEST) -> Sequence[Term]:
    """Return the best conjunctions that hold for the failing cell `seed`, the best first."""
    found = space.true_of(seed, seen.failing, seen.failing | seen.passing)
    price = math.log(max(2, len(found)))
    best: dict[int, Term] = {}
    for literals, mask in _conjunctions(found, space.everything, seen, deepest):
        outside = (seen.failing & ~mask).bit_count()
        # Failing cells outside need further terms.
        cost = price * (len(literals) + (1 + math.log2(1 + outside) if outside else 0))
        cost += sum(_ODD[one.literal.relation] for one in literals)
        term = Term(literals, mask, seen.evidence(mask) - cost)
        if mask not in best or best[mask].score < term.score:
            best[mask] = term
    return sorted(best.values(), key=lambda term: (-term.score, -term.mask.bit_count()))[:_MOST_KEPT]


def _conjunctions(
    found: Sequence[Candidate], everything: int, seen: Observations, deepest: int
) -> Iterator[tuple[tuple[Candidate, ...], int]]:
    """Yield conjunctions with their cells. One that no passing cell contradicts is not made longer."""
    yield (), everything
    level: list[tuple[tuple[Candidate, ...], int, int]] = [((), everything, 0)]
    for _ in range(deepest):
        longer: list[tuple[tuple[Candidate, ...], int, int]] = []
        for literals, mask, start in level:
            for place in range(start, len(found)):
                one = found[place]
                both = mask & one.mask
                if both == mask or any(both == earlier.mask for earlier in literals):
                    continue
                made = (*literals, one)
                yield made, both
                if both & seen.passing or seen.flaky:
                    longer.append((made, both, place + 1))
        level = longer


def _seeds(failing: int) -> Sequence[int]:
    """Return some failing cells, spread over all of them."""
    cells = list(places(failing))
    step = max(1, len(cells) // _MOST_SEEDS)
    return cells[::step][:_MOST_SEEDS]


def joined(one: Term, other: Term) -> Term:
    """Return the conjunction of two terms, without literals that follow from the others."""
    mask = one.mask & other.mask
    literals = list(dict.fromkeys((*one.literals, *other.literals)))
    for literal in tuple(literals):
        rest = [each.mask for each in literals if each is not literal]
        if rest and reduce(and_, rest) == mask:
            literals.remove(literal)
    return Term(tuple(literals), mask, other.score)
