"""The next further run for the conditions of a run's failures. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_hetgpu.analysis.boundary.condition import REPEATS, Boundary, State
from pytest_hetgpu.analysis.boundary.of_run import MatrixRuns
from pytest_hetgpu.analysis.boundary.space import places
from pytest_hetgpu.analysis.boundary.words import literals_text


@dataclass(frozen=True, slots=True)
class Control:
    """A further run for the condition of `key`: of a cell without a result, or of one that was run (`repeats`).

    `point` is the only point that it measures; empty: all points of the cell.
    """

    matrix: str
    scenario: str
    key: str
    reason: str
    repeats: bool = False
    point: Mapping[str, str] = field(default_factory=dict)


def next_control(matrices: Sequence[MatrixRuns], done: Mapping[str, int]) -> Control | None:
    """Return the next further run; None if none shows more. Keys with the fewest runs `done` come first."""
    wanted = [(done.get(one.found.key, 0), matrix, one) for matrix in matrices for one in matrix.conditions]
    for _, matrix, one in sorted(wanted, key=lambda each: each[0]):
        if one.state is State.OPEN and (found := next(_controls(matrix, one), None)):
            return found
    return None


def _controls(matrix: MatrixRuns, one: Boundary) -> Iterator[Control]:
    found = one.found
    if one.separating is not None:
        yield _control(matrix, one, one.separating, _why(one))
        return
    fails = found.seen.fails
    inside = [place for place in places(found.mask) if fails.get(place) and not matrix.entries[place].refused]
    if inside and not one.rivals and max(fails.values()) < REPEATS:
        yield _control(matrix, one, max(inside, key=lambda place: fails[place]), "repeats the failure")


def _control(matrix: MatrixRuns, one: Boundary, place: int, reason: str) -> Control:
    entry = matrix.entries[place]
    number = place if entry.number is None else entry.number
    repeats = entry.result
    return Control(matrix.matrix, matrix.ids[number], one.found.key, reason, repeats, entry.point if repeats else {})


def _why(one: Boundary) -> str:
    best = literals_text(one.found.terms[0].literals)
    if one.rivals:
        return f"separates {best} from {literals_text(one.rivals[0].literals)}"
    return f"tries {best}"
