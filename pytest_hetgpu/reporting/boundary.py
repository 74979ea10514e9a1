"""The conditions of the failures of runs, by matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_hetgpu.analysis.boundary.condition import against_passes, conditions, judged
from pytest_hetgpu.analysis.boundary.runs import RanCell, runs_of, space_of
from pytest_hetgpu.analysis.boundary.summary import Summary, summary
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.store.cells import NEVER_STARTED, CellRecord


def boundaries(cells: Sequence[CellRecord]) -> Iterator[tuple[str, tuple[Summary, ...]]]:
    """Yield each matrix with the conditions of its failures: of any failure, then of each key.

    A cell of several runs counts with all of them. Cells that the matrix or the machines exclude are left out.
    """
    for matrix in dict.fromkeys(cell.matrix for cell in cells):
        allowed: dict[str, list[CellRecord]] = {}
        for cell in cells:
            if cell.matrix == matrix and _is_allowed(cell):
                allowed.setdefault(cell.scenario, []).append(cell)
        ran = [_ran(several) for several in allowed.values()]
        space, runs = space_of(ran), runs_of(ran)
        found = conditions(space, runs)
        whole = (judged(space, against_passes(space, runs)),) if len(found) > 1 else ()
        yield matrix, tuple(summary(space, runs, one) for one in (*whole, *found))


def _is_allowed(cell: CellRecord) -> bool:
    return cell.outcome.kind is not Kind.SKIPPED or cell.outcome is NEVER_STARTED


def _ran(several: Sequence[CellRecord]) -> RanCell:
    outcomes = [cell.outcome for cell in several if cell.outcome.kind is not Kind.SKIPPED]
    facts = next((outcome.facts for outcome in outcomes if outcome.facts), {})
    return RanCell(several[0].axes, facts, outcomes)
