"""Facts that a report prints about a condition: where it holds, what supports it, and what each literal needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_hetgpu.analysis.boundary.condition import Boundary, Ran, Runs
from pytest_hetgpu.analysis.boundary.search import Term
from pytest_hetgpu.analysis.boundary.space import Candidate, Literal, Relation, Space, places, union


@dataclass(frozen=True, slots=True)
class Support:
    """Numbers of cells: `matching` ones, of which `run` were run and `failing` fail this way.

    `beyond` are the cells that were run and do not match, of which `failing_beyond` fail this way.
    """

    matching: int
    run: int
    failing: int
    beyond: int
    failing_beyond: int


@dataclass(frozen=True, slots=True)
class Required:
    """Ends of cells with other `values` of an axis, for which all other literals hold: `passes`, or other keys."""

    axis: str
    values: tuple[str, ...]
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A condition as reports print it. `no_effect` are axes that vary among the failing cells, with their values."""

    key: str
    state: str
    terms: tuple[tuple[Literal, ...], ...]
    aliases: tuple[tuple[Literal, Literal], ...]
    support: Support
    required: tuple[Required, ...]
    no_effect: tuple[tuple[str, tuple[str, ...]], ...]
    #: the results of remedies, and the smallest job that fails in this way, in words
    cure: str
    smallest: str
    #: the number of further runs for it
    further: int
    #: other conditions that the runs leave possible
    rivals: tuple[tuple[Literal, ...], ...]
    #: the numbers of failed and of all runs of the matching cells
    rate: tuple[int, int]
    #: the values of a cell that was not run, and whose run shows most about the condition
    untried: Mapping[str, str]
    #: the matching cells, by number
    cells: frozenset[int]
    #: the values that a literal leaves out, if it takes more than half of its axis
    left_out: Mapping[Literal, tuple[str, ...]]


PASSES, NOT_RUN = "passes", "not run"
NO_VALUE = "without it"


@dataclass(frozen=True, slots=True)
class Trials:
    """Number of further runs for a condition, and in words the results of remedies and the smallest job."""

    further: int = 0
    cure: str = ""
    smallest: str = ""


def summary(space: Space, runs: Runs, condition: Boundary, trials: Trials = Trials()) -> Summary:
    """Return the facts about a condition, with what was tried for it. Numbers are of cells that the matrix has."""
    found = condition.found
    # A lost network is no failure that counts for all of them.
    tried = union(1 << cell for cell in runs) if found.key else found.seen.failing | found.seen.passing
    failing = found.seen.failing
    inside, tried = found.mask & ~space.derived, tried & ~space.derived
    matching = space.numbers_of(inside)
    beyond = space.numbers_of(tried & ~inside) - matching
    support = Support(
        len(matching),
        len(space.numbers_of(inside & tried)),
        len(space.numbers_of(inside & failing)),
        len(beyond),
        len(beyond & space.numbers_of(failing)),
    )
    failed, passed = found.seen.runs(found.mask)
    literals = {one.literal: one for term in found.terms for one in term.literals}
    return Summary(
        found.key,
        condition.state.value,
        tuple(tuple(_of_matrix(space, one.literal) for one in term.literals) for term in found.terms),
        tuple((_of_matrix(space, one.literal), alias) for one in literals.values() for alias in one.aliases),
        support,
        tuple(line for term in found.terms for one in term.literals for line in _required(space, runs, term, one)),
        tuple(_no_effect(space, found.terms, failing)),
        trials.cure,
        trials.smallest,
        trials.further,
        tuple(tuple(one.literal for one in rival.literals) for rival in condition.rivals),
        (failed, failed + passed),
        _values(space, condition.separating, found.seen.passing),
        matching,
        {one: rest for literal in literals if (rest := _left_out(space, one := _of_matrix(space, literal)))},
    )


def _values(space: Space, cell: int | None, passing: int) -> Mapping[str, str]:
    """Return the values of a cell on the axes, unless it has passed."""
    if cell is None or passing >> cell & 1:
        return {}
    return {name: value for name, value in space.cells[cell].items() if name in space.axes}


def _of_matrix(space: Space, literal: Literal) -> Literal:
    """Return a literal without the values that only derived cells have; they are in other lines of the report."""
    if literal.relation is not Relation.ONE_OF:
        return literal
    values = tuple(value for value in literal.values if value in _matrix_values(space, literal.axis))
    return Literal(literal.axis, Relation.ONE_OF if len(values) > 1 else Relation.EQUAL, values or literal.values)


def _matrix_values(space: Space, axis: str) -> list[str]:
    return [value for value, mask in space.masks[axis].items() if mask & ~space.derived]


def _left_out(space: Space, literal: Literal) -> tuple[str, ...]:
    values = _matrix_values(space, literal.axis)
    if literal.relation is Relation.NOT:
        return literal.values
    if literal.relation is Relation.ONE_OF and 2 * len(literal.values) > len(values):
        return tuple(value for value in values if value not in literal.values)
    return ()


def _required(space: Space, runs: Runs, term: Term, one: Candidate) -> Iterator[Required]:
    """Yield the ends of cells with values outside of a literal, or without that fact; equal ones together."""
    others = space.everything
    for literal in term.literals:
        if literal is not one:
            others &= literal.mask
    axis = one.literal.axis
    shown: dict[tuple[str, ...], list[str]] = {}
    without = 0 if axis in space.axes else space.everything & ~space.having(axis)
    for value, mask in (*space.masks[axis].items(), (NO_VALUE, without)):
        if cells := mask & others & ~one.mask:
            shown.setdefault(tuple(_shown(runs, cells)), []).append(value)
    yield from (Required(axis, tuple(values), what) for what, values in shown.items())


def _shown(runs: Runs, cells: int) -> Iterator[str]:
    found = [run for cell in places(cells) for run in runs.get(cell, ())]
    if not found:
        yield NOT_RUN
    if any(run.ran is Ran.PASSED for run in found):
        yield PASSES
    yield from dict.fromkeys(run.key for run in found if run.ran is not Ran.PASSED)


def _no_effect(space: Space, terms: Sequence[Term], failing: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    named = {one.literal.axis for term in terms for one in term.literals if one.literal.relation is not Relation.ONE_OF}
    for name in space.axes:
        values = tuple(value for value, mask in space.masks[name].items() if mask & failing)
        if name not in named and len(values) > 1:
            yield name, values
