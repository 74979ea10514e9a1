"""The next further run for the conditions of a run's failures. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_hetgpu.analysis.boundary.condition import REPEATS, Boundary, State
from pytest_hetgpu.analysis.boundary.of_run import MatrixRuns
from pytest_hetgpu.analysis.boundary.space import places
from pytest_hetgpu.analysis.boundary.words import literals_text

PLACEMENT = "placement"


def placement_name(nodes: Sequence[str]) -> str:
    """Return the name of a placement that the matrix does not have: `[amd, amd]`."""
    return f"[{', '.join(nodes)}]"


@dataclass(frozen=True, slots=True)
class Control:
    """A further run for the condition of `key`: of a cell without a result, or of one that was run (`repeats`).

    `point` is the only point that it measures; empty: all points of the cell. `nodes` is the hardware of other nodes
    than those of the cell.
    """

    matrix: str
    scenario: str
    key: str
    reason: str
    repeats: bool = False
    point: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()

    @property
    def values(self) -> Mapping[str, str]:
        """The values in which a repeat differs from its cell."""
        return {PLACEMENT: placement_name(self.nodes)} if self.nodes else self.point


def next_control(matrices: Sequence[MatrixRuns], done: Mapping[str, int]) -> Control | None:
    """Return the next further run; None if none shows more. Keys with the fewest runs `done` come first."""
    wanted = [(done.get(one.found.key, 0), matrix, one) for matrix in matrices for one in matrix.conditions]
    for _, matrix, one in sorted(wanted, key=lambda each: each[0]):
        if one.state in (State.OPEN, State.FLAKY) and (found := next(_controls(matrix, one), None)):
            return found
    return None


def _controls(matrix: MatrixRuns, one: Boundary) -> Iterator[Control]:
    """Yield the next run for a condition: first the failure is repeated, as one that is flaky needs other runs."""
    seen = one.found.seen
    inside = [place for place in places(one.found.mask & seen.failing) if not matrix.entries[place].refused]
    if inside and not seen.flaky and max(seen.fails.values()) < REPEATS:
        yield _control(matrix, one, max(inside, key=lambda place: seen.fails[place]), "repeats the failure")
    elif one.separating is not None and not matrix.entries[one.separating].refused:
        again = bool(seen.passing >> one.separating & 1)
        yield _control(matrix, one, one.separating, "may be flaky" if again else _why(one))


def _control(matrix: MatrixRuns, one: Boundary, place: int, reason: str) -> Control:
    entry = matrix.entries[place]
    repeats = entry.result
    return Control(
        matrix.matrix, matrix.ids[matrix.number(place)], one.found.key, reason, repeats, entry.point if repeats else {}
    )


def _why(one: Boundary) -> str:
    best = literals_text(one.found.terms[0].literals)
    if one.rivals:
        return f"separates {best} from {literals_text(one.rivals[0].literals)}"
    return f"tries {best}"


Placements = Callable[[str, str], Sequence[tuple[str, ...]]]
"""Returns the nodes of other placements to try for a cell: its kinds of hardware each alone, and in the other order."""


def next_placement(matrices: Sequence[MatrixRuns], done: Mapping[str, int], placements: Placements) -> Control | None:
    """Return the next run of a failing cell on other nodes; None if there is none.

    A cell on two kinds of hardware shows whether one of them fails alone.
    """
    wanted = [(done.get(one.found.key, 0), matrix, one) for matrix in matrices for one in matrix.conditions]
    for _, matrix, one in sorted(wanted, key=lambda each: each[0]):
        seen = one.found.seen
        number = next((matrix.number(place) for place in places(one.found.mask & seen.failing)), None)
        if number is not None:
            name = matrix.ids[number]
            for nodes in placements(matrix.matrix, name):
                return Control(matrix.matrix, name, one.found.key, "on other nodes", repeats=True, nodes=nodes)
    return None
