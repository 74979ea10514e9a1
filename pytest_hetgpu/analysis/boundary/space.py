"""Allowed cells of a matrix as bits, and the literals that hold for some of them.

A set of cells is an int with bit i for cell i.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_


class Relation(enum.Enum):
    """Relation of a cell's value on an axis to the values of a literal."""

    EQUAL = "="
    AT_LEAST = ">="
    AT_MOST = "<="
    ONE_OF = "in"
    NOT = "!="


@dataclass(frozen=True, slots=True)
class Literal:
    """A statement about one axis or fact of a cell. Only ONE_OF has several values."""

    axis: str
    relation: Relation
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A literal, the cells for which it holds, and literals that hold for the same cells."""

    literal: Literal
    mask: int
    aliases: tuple[Literal, ...] = ()


@dataclass(frozen=True)
class Space:
    """The allowed cells, each with its values on axes and its facts.

    `axes` are those of the matrix; other names are facts, which follow from a cell's values. `ordered` has the values
    of ordered axes and facts, the smallest first. `numbers` are given if the points of one cell are several entries:
    entries with one number are points of one cell.
    """

    cells: tuple[Mapping[str, str], ...]
    axes: tuple[str, ...]
    ordered: Mapping[str, Sequence[str]] = field(default_factory=dict)
    numbers: Sequence[int] = ()
    #: names of which only a threshold makes sense
    thresholds: frozenset[str] = frozenset()
    #: cells that the matrix does not have
    derived: int = 0

    @cached_property
    def everything(self) -> int:
        """All cells."""
        return (1 << len(self.cells)) - 1

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The axes, then the facts."""
        return tuple(dict.fromkeys((*self.axes, *(name for cell in self.cells for name in cell))))

    @cached_property
    def masks(self) -> Mapping[str, Mapping[str, int]]:
        """The cells of each value of each axis or fact; values of ordered ones in their order."""
        found: dict[str, dict[str, int]] = {name: dict.fromkeys(self.ordered.get(name, ()), 0) for name in self.names}
        for place, cell in enumerate(self.cells):
            for name, value in cell.items():
                found[name][value] = found[name].get(value, 0) | 1 << place
        return {name: {value: mask for value, mask in masks.items() if mask} for name, masks in found.items()}

    def numbers_of(self, mask: int) -> frozenset[int]:
        """Return the numbers of the cells of a set."""
        return frozenset(self.numbers[place] for place in places(mask)) if self.numbers else frozenset(places(mask))

    def mask(self, literal: Literal) -> int:
        """Return the cells for which a literal holds."""
        masks = self.masks.get(literal.axis, {})
        values = list(masks)
        first = literal.values[0]
        if literal.relation is Relation.NOT:
            return self.having(literal.axis) & ~masks.get(first, 0)
        if literal.relation is Relation.AT_LEAST:
            wanted = values[values.index(first) :]
        elif literal.relation is Relation.AT_MOST:
            wanted = values[: values.index(first) + 1]
        else:
            wanted = [value for value in literal.values if value in masks]
        return union(masks[value] for value in wanted)

    def having(self, name: str) -> int:
        """Return the cells that have any value on an axis, or any value of a fact."""
        return union(self.masks.get(name, {}).values())

    def true_of(self, cell: int, failing: int, seen: int) -> list[Candidate]:
        """Return literals that hold for a cell and not for all; those that hold for the same cells are aliases.

        `failing` are cells that failed, `seen` those that failed or passed. Values that no cell of `seen` has make no
        negation.
        """
        merged: dict[int, list[Literal]] = {}
        for literal in self._literals(cell, failing, seen):
            mask = self.mask(literal)
            if mask != self.everything:
                merged.setdefault(mask, []).append(literal)
        return [Candidate(first, mask, tuple(rest[:2])) for mask, (first, *rest) in merged.items()]

    def _literals(self, cell: int, failing: int, seen: int) -> Iterator[Literal]:
        """Yield literals by preference: equalities of the user's axes first, negations last."""
        mine = self.cells[cell]
        for relation in Relation:
            for name in self.names:
                if name in mine:
                    for values in self._values(relation, name, mine[name], failing, seen):
                        yield Literal(name, relation, values)

    def _values(self, relation: Relation, name: str, value: str, failing: int, seen: int) -> Iterator[tuple[str, ...]]:
        masks = self.masks[name]
        values = list(masks)
        at = values.index(value)
        if name in self.thresholds and relation not in (Relation.AT_LEAST, Relation.AT_MOST):
            return
        if relation is Relation.EQUAL:
            yield (value,)
        elif relation is Relation.ONE_OF:
            some = tuple(one for one in values if masks[one] & failing)
            if 1 < len(some) < len(values):
                yield some
        elif relation is Relation.NOT:
            if len(values) > 2:
                yield from ((one,) for one in values if one != value and masks[one] & seen)
        elif name in self.ordered:
            bounds = values[1 : at + 1] if relation is Relation.AT_LEAST else values[at:-1]
            yield from ((one,) for one in bounds)


def places(mask: int) -> Iterator[int]:
    """Yield the numbers of the cells in a set."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def union(masks: Iterable[int]) -> int:
    """Return the cells of any of several sets."""
    return reduce(or_, masks, 0)
