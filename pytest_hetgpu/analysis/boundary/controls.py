"""The next further run for the conditions of a run's failures. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_hetgpu.analysis.boundary.condition import REPEATS, Boundary, State
from pytest_hetgpu.analysis.boundary.jobs import RANKS
from pytest_hetgpu.analysis.boundary.of_run import MatrixRuns
from pytest_hetgpu.analysis.boundary.space import Relation, places
from pytest_hetgpu.analysis.boundary.words import literals_text
from pytest_hetgpu.planning.derived import Alias, DerivedCell, Doubts
from pytest_hetgpu.planning.variant import Variant, of_point


@dataclass(frozen=True, slots=True)
class Control:
    """A further run for the condition of `key`: of a cell without a result, or of one that was run (`repeats`).

    A repeat differs from its cell in `values`: the only point that it measures, or the values of a cell that the matrix
    does not have. `variant` has the same differences.
    """

    matrix: str
    scenario: str
    key: str
    reason: str
    repeats: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    variant: Variant = field(default_factory=Variant)


def next_control(matrices: Sequence[MatrixRuns], done: Mapping[str, int]) -> Control | None:
    """Return the next further run; None if none shows more. Keys with the fewest runs `done` come first."""
    for matrix, one in _by_runs(matrices, done):
        if one.state in (State.OPEN, State.FLAKY) and (found := next(_controls(matrix, one), None)):
            return found
    return None


def _by_runs(matrices: Sequence[MatrixRuns], done: Mapping[str, int]) -> Iterator[tuple[MatrixRuns, Boundary]]:
    """Yield the conditions, those of keys with the fewest runs first."""
    wanted = [(matrix, one) for matrix in matrices for one in matrix.conditions]
    yield from sorted(wanted, key=lambda each: done.get(each[1].found.key, 0))


def _controls(matrix: MatrixRuns, one: Boundary) -> Iterator[Control]:
    """Yield the next run for a condition: first the failure is repeated, as one that is flaky needs other runs."""
    seen = one.found.seen
    failing = one.found.mask & seen.failing & ~matrix.space.derived
    inside = [place for place in places(failing) if not matrix.entries[place].refused]
    if inside and not seen.flaky and max(seen.fails.values()) < REPEATS:
        yield _control(matrix, one, max(inside, key=lambda place: seen.fails[place]), "repeats the failure")
    elif one.separating is not None and not matrix.entries[one.separating].refused:
        again = bool(seen.passing >> one.separating & 1)
        yield _control(matrix, one, one.separating, "may be flaky" if again else _why(one))


def _control(matrix: MatrixRuns, one: Boundary, place: int, reason: str) -> Control:
    entry = matrix.entries[place]
    point = entry.point if entry.result else {}
    name = matrix.ids[matrix.number(place)]
    return Control(matrix.matrix, name, one.found.key, reason, entry.result, point, of_point(point))


def _why(one: Boundary) -> str:
    best = literals_text(one.found.terms[0].literals)
    if one.rivals:
        return f"separates {best} from {literals_text(one.rivals[0].literals)}"
    return f"tries {best}"


Derive = Callable[[str, str, Doubts], Iterable[DerivedCell]]
"""Returns the cells that may be derived from a cell of a matrix, by both names, and were not run yet."""


def next_derived(matrices: Sequence[MatrixRuns], done: Mapping[str, int], derive: Derive) -> Control | None:
    """Return the next run of a cell that the matrix does not have, with one difference from a failing one.

    None if there is none. A single pass of such a cell shows little about a failure that is flaky.
    """
    for matrix, one in _by_runs(matrices, done):
        seen = one.found.seen
        place = next(places(one.found.mask & seen.failing & ~matrix.space.derived), None)
        if place is None or one.state is State.FLAKY:
            continue
        name, point = matrix.ids[matrix.number(place)], matrix.entries[place].point
        for cell in derive(matrix.matrix, name, _doubts(matrix, one)):
            settings = {**of_point(point).settings, **cell.variant.settings}
            variant = replace(cell.variant, settings=settings)
            return Control(matrix.matrix, name, one.found.key, cell.reason, True, {**point, **cell.values}, variant)
    return None


def _doubts(matrix: MatrixRuns, one: Boundary) -> Doubts:
    """Return what no cell of the matrix can show about a condition.

    Values of ordered axes stay as they are: the name of another one has no place in their order.
    """
    space = matrix.space
    aliases = [
        Alias(literal.literal.axis, alias.axis)
        for term in one.found.terms
        for literal in term.literals
        if literal.literal.relation is Relation.EQUAL and literal.literal.axis not in space.ordered
        for alias in literal.aliases
        if alias.relation is Relation.EQUAL
    ]
    return Doubts(aliases, RANKS not in space.masks)
