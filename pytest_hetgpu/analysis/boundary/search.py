"""Search for the shortest conjunction of literals that separates failing cells from others."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pytest_hetgpu.analysis.boundary.observations import Observations
from pytest_hetgpu.analysis.boundary.space import Candidate, Literal, Relation, Space, places

DEEPEST = 3
MOST_TERMS = 3
_MOST_SEEDS = 5
_MOST_KEPT = 400
_MOST_LONGER = 200
# Of conditions of one length, an equality is the plainer one.
_ODD = {
    Relation.EQUAL: 0.0,
    Relation.AT_LEAST: 0.1,
    Relation.AT_MOST: 0.1,
    Relation.ONE_OF: 0.2,
    Relation.NOT: 0.3,
}
# Of two conditions that hold for the failing cells, the one of the matrix's own values is the plainer one.
_FACT = 0.05
# Of one value of an ordered axis only, if the values beyond it were not run: a threshold is likelier.
_ONE_OF_ORDERED = 0.15


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
        found = _best(space, left, deepest)
        if left.passing & found.mask and not left.flaky:
            # Some passes contradict every condition of this length.
            found = max(found, _best(space, left, deepest + 1), key=_score)
        terms.append(found)
        left = without(left, found.mask)
    return tuple(terms)


def _best(space: Space, seen: Observations, deepest: int) -> Term:
    return max((hypotheses(space, seen, seed, deepest)[0] for seed in _seeds(seen.failing)), key=_score)


def _score(term: Term) -> float:
    return term.score


def without(seen: Observations, mask: int) -> Observations:
    """Return the observations without the failing cells of a set."""
    explained = seen.failing & mask
    return Observations(
        {cell: count for cell, count in seen.fails.items() if not explained >> cell & 1},
        {cell: count for cell, count in seen.passes.items() if not explained >> cell & 1},
    )


def hypotheses(space: Space, seen: Observations, seed: int, deepest: int = DEEPEST) -> Sequence[Term]:
    """Return the best conjunctions that hold for the failing cell `seed`, the best first.

    Only the best ones of a length are made longer, and only until no longer one can be better.
    """
    found = space.true_of(seed, seen.failing, seen.failing | seen.passing)
    price = math.log(max(2, len(found)))
    level = [_term(space, (), space.everything, seen, price)]
    best = {space.everything: level[0]}
    for length in range(1, deepest + 1):
        if max(term.score for term in best.values()) >= -price * length:
            break
        longer: dict[int, Term] = {}
        for term in level:
            for literal in found:
                mask = term.mask & literal.mask
                if mask == term.mask:
                    continue
                literals = (*term.literals, literal)
                known = longer.get(mask) or best.get(mask)
                if known is None:
                    longer[mask] = _term(space, literals, mask, seen, price)
                elif (plainer := _size(space, known.literals, price) - _size(space, literals, price)) > 0:
                    longer[mask] = Term(literals, mask, known.score + plainer)
        best |= longer
        open_ones = (term for term in longer.values() if seen.flaky or term.mask & seen.passing)
        level = heapq.nlargest(_MOST_LONGER, open_ones, key=lambda term: term.score)
    return sorted(best.values(), key=lambda term: (-term.score, -term.mask.bit_count()))[:_MOST_KEPT]


def _term(space: Space, literals: tuple[Candidate, ...], mask: int, seen: Observations, price: float) -> Term:
    outside = (seen.failing & ~mask).bit_count()
    # Failing cells outside need further terms.
    further = price * (1 + math.log2(1 + outside)) if outside else 0.0
    return Term(literals, mask, seen.evidence(mask) - further - _size(space, literals, price))


def _size(space: Space, literals: Sequence[Candidate], price: float) -> float:
    """Return what a conjunction costs, whatever cells it holds for."""
    return sum(price + _oddity(space, one.literal, price) for one in literals)


def _oddity(space: Space, literal: Literal, price: float) -> float:
    """Return what a literal costs beside its price; an exception of a fact costs as much as a further literal."""
    if literal.relation is Relation.EQUAL and literal.axis in space.ordered:
        return _ONE_OF_ORDERED
    fact = literal.axis not in space.axes
    exception = literal.relation in (Relation.NOT, Relation.ONE_OF) and fact
    return _ODD[literal.relation] + _FACT * fact + (price + _ODD[Relation.ONE_OF]) * exception


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
