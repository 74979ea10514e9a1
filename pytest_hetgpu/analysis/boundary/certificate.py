"""Gaps between the runs of cells and an established term, and the cells that would fill them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pytest_hetgpu.analysis.boundary.observations import Observations
from pytest_hetgpu.analysis.boundary.search import Term
from pytest_hetgpu.analysis.boundary.space import Candidate, Literal, Relation, Space, places

_FEWEST = 3


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that has not been seen: one of the cells in the set `cells` would show it.

    `literal` is the one in question; None for the failing cells of the term.
    """

    cells: int
    literal: Literal | None = None


def gaps(space: Space, seen: Observations, term: Term) -> list[Gap]:
    """Return the gaps of a term; none if it is established.

    Every literal needs a passing neighbour for each other value of its axis: a cell for which all other literals hold.
    A threshold needs both sides of its step and the far ends. All other axes vary among the failing cells, of which
    there are three, or all. Cells that the matrix does not have fill gaps and make none.
    """
    inside = seen.failing & term.mask
    found = [gap for one in term.literals for gap in _of_literal(space, seen, term, one)]
    found += [gap for name in space.axes for gap in _of_axis(space, term, name, inside)]
    found += [gap for one in term.literals for gap in _of_values(space, term, one, inside)]
    left = term.mask & ~inside & ~seen.passing
    if inside.bit_count() < _FEWEST and left:
        found.append(Gap(left))
    return [replace(gap, cells=cells) for gap in found if (cells := gap.cells & ~space.derived)]


def _of_literal(space: Space, seen: Observations, term: Term, one: Candidate) -> Iterator[Gap]:
    """Yield a gap per value outside of a literal that has no passing neighbour, unless no cell can be one."""
    others = space.everything
    for literal in term.literals:
        if literal is not one:
            others &= literal.mask
    outside = others & ~one.mask
    masks = space.masks[one.literal.axis]
    for value in _values_outside(one.literal, masks):
        near = outside & masks[value]
        if not near & seen.sure and near & ~seen.failing:
            yield Gap(near & ~seen.failing, one.literal)
    if one.literal.relation in (Relation.AT_LEAST, Relation.AT_MOST):
        for value in _ends_inside(one.literal, masks):
            cells = term.mask & masks[value]
            if not cells & seen.failing and cells & ~seen.passing:
                yield Gap(cells & ~seen.passing, one.literal)


def _values_outside(literal: Literal, masks: Mapping[str, int]) -> Iterator[str]:
    values = list(masks)
    at = values.index(literal.values[0])
    if literal.relation is Relation.AT_LEAST:
        yield from dict.fromkeys((values[at - 1], values[0]))
    elif literal.relation is Relation.AT_MOST:
        yield from dict.fromkeys((values[at + 1], values[-1]))
    elif literal.relation is Relation.NOT:
        yield literal.values[0]
    else:
        yield from (value for value in values if value not in literal.values)


def _ends_inside(literal: Literal, masks: Mapping[str, int]) -> Iterator[str]:
    """Yield the value at the step, and the far end."""
    values = list(masks)
    at = values.index(literal.values[0])
    yield from dict.fromkeys((values[at], values[-1] if literal.relation is Relation.AT_LEAST else values[0]))


def _of_axis(space: Space, term: Term, name: str, inside: int) -> Iterator[Gap]:
    """Yield a gap if the failing cells of a term have one value only on an axis on which its cells have several."""
    masks = {value: mask & term.mask for value, mask in space.masks.get(name, {}).items() if mask & term.mask}
    wanted = list(masks.values())
    if name in space.ordered and len(wanted) > 1:
        for end in (wanted[0], wanted[-1]):
            if not end & inside:
                yield Gap(end)
    elif len(wanted) > 1 and sum(bool(mask & inside) for mask in wanted) == 1:
        yield Gap(term.mask & ~next(mask for mask in wanted if mask & inside))


def _of_values(space: Space, term: Term, one: Candidate, inside: int) -> Iterator[Gap]:
    """Yield a gap for each value of a set whose failing cells have one value only on another axis.

    They may fail for that value: two conditions look like one with a set. A set of most values is rather an exception.
    """
    some = one.literal.values
    if one.literal.relation is not Relation.ONE_OF or 2 * len(some) > len(space.masks[one.literal.axis]):
        return
    named = {each.literal.axis for each in term.literals}
    for value in some:
        cells = term.mask & space.masks[one.literal.axis][value]
        left, found = cells & ~inside, False
        for name in space.axes:
            alone = [mask for mask in space.masks[name].values() if mask & cells & inside]
            if name not in named and len(alone) == 1 and left & ~alone[0]:
                left, found = left & ~alone[0], True
        if found:
            yield Gap(left)


def neighbours(space: Space, cells: int, among: int) -> int:
    """Return the cells of a set that differ from one of `cells` in one axis only."""
    found = 0
    for cell in places(cells):
        mine = space.cells[cell]
        equal = [space.masks[name].get(mine[name], 0) if name in mine else space.everything for name in space.axes]
        # All but one of the axes are equal: products of all before and of all after each.
        before = [space.everything]
        for mask in equal[:-1]:
            before.append(before[-1] & mask)
        after = space.everything
        for place in range(len(equal) - 1, -1, -1):
            found |= before[place] & after & ~equal[place]
            after &= equal[place]
    return found & among
