"""Conditions of failures before and after: a boundary that moved. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_hetgpu.analysis.boundary.condition import conditions
from pytest_hetgpu.analysis.boundary.points import by_point, likely_points, point_values, points_before_end
from pytest_hetgpu.analysis.boundary.runs import RanCell, end_of, runs_of, space_of
from pytest_hetgpu.analysis.boundary.summary import summary
from pytest_hetgpu.analysis.boundary.words import where
from pytest_hetgpu.analysis.compare.sides import Identity, Side
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.store.run_summary import CellSummary


@dataclass(frozen=True, slots=True)
class BoundaryMove:
    """The condition of a failure, in words, where it differs between the sides."""

    matrix: str
    key: str
    before: str
    after: str


def moves(before: Side, after: Side) -> Iterator[BoundaryMove]:
    """Yield the conditions of signatures that both sides have, if they differ; of the cells that both have."""
    shared = before.cells.keys() & after.cells.keys()
    for matrix in dict.fromkeys(matrix for matrix, _ in after.cells):
        mine = [identity for identity in after.cells if identity in shared and identity[0] == matrix]
        was, now = (_conditions(side, mine) for side in (before, after))
        yield from (BoundaryMove(matrix, key, was[key], now[key]) for key in now if key in was and was[key] != now[key])


def _conditions(side: Side, identities: Sequence[Identity]) -> Mapping[str, str]:
    tried = ([one for one in side.cells[identity] if one.verdict is not Verdict.NOT_RUN] for identity in identities)
    cells = [several for several in tried if several]
    if not any(one.kind.failed for several in cells for one in several):
        return {}
    sweeps = {_measured(one) for several in cells for one in several}
    points = by_point([_ran(several, sweeps) for several in cells])
    space, runs = space_of(points), runs_of(points)
    return {found.found.key: where(summary(space, runs, found)) for found in conditions(space, runs)}


def _ran(several: Sequence[CellSummary], sweeps: set[tuple[MessagePoint, ...]]) -> RanCell:
    asked = max((likely_points(_measured(one), sweeps) for one in several), key=len)
    ends = [
        end
        for one in several
        for end in end_of(one.kind, one.signature, points_before_end(one.kind, _measured(one), asked))
    ]
    return RanCell(several[0].axes, several[0].facts, ends, point_values(asked))


def _measured(cell: CellSummary) -> tuple[MessagePoint, ...]:
    return tuple(dict.fromkeys(one.point for one in cell.measurements))
