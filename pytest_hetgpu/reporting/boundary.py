"""The conditions of the failures of runs, by matrix: as facts, as a section of the summary, and for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pytest_hetgpu.analysis.boundary.condition import RunEnd, against_passes, conditions, judged
from pytest_hetgpu.analysis.boundary.points import by_point, point_values, points_before_end, stopped_between_points
from pytest_hetgpu.analysis.boundary.runs import RanCell, ends_of, runs_of, space_of
from pytest_hetgpu.analysis.boundary.summary import Summary, summary
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.reporting.boundary_lines import boundary_lines
from pytest_hetgpu.store.cells import NEVER_STARTED, CellRecord
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.folder import RunFolder, read_job
from pytest_hetgpu.store.text import one_line

Points = Callable[[CellRecord], Sequence[MessagePoint]]
"""Returns the points that the job of a cell measures, in its order."""
_LONGEST = 1000
_GOOD = (Kind.PASSED, Kind.SLOW, Kind.SKIPPED)


def measured_points(folder: RunFolder) -> Points:
    """Return a function that reads the points of a cell's job in a run's folder; none of programs of other projects."""

    def read(cell: CellRecord) -> Sequence[MessagePoint]:
        try:
            demand = read_job(folder.job(cell.label)).demand
        except (OSError, RecordError):
            return ()
        return demand.points if demand.measured and demand.external is None else ()

    return read


def boundaries(cells: Sequence[CellRecord], points: Points = lambda _: ()) -> Iterator[tuple[str, tuple[Summary, ...]]]:
    """Yield each matrix with the conditions of its failures: of any failure, then of each key.

    A cell of several runs counts with all of them. Cells that the matrix or the machines exclude are left out.
    """
    for matrix in dict.fromkeys(cell.matrix for cell in cells):
        allowed = allowed_cells(cells, matrix)
        ran = _ran_cells(allowed, points)
        space, runs = space_of(ran), runs_of(ran)
        found = conditions(space, runs)
        whole = (judged(space, against_passes(space, runs)),) if len(found) > 1 else ()
        yield matrix, tuple(summary(space, runs, one) for one in (*whole, *found))


def allowed_cells(cells: Sequence[CellRecord], matrix: str) -> Mapping[str, Sequence[CellRecord]]:
    """Return the records of each cell of a matrix, by its id, without excluded ones.

    A summary's numbers of cells are places in this mapping.
    """
    found: dict[str, list[CellRecord]] = {}
    for cell in cells:
        if cell.matrix == matrix and (cell.outcome.kind is not Kind.SKIPPED or cell.outcome is NEVER_STARTED):
            found.setdefault(cell.scenario, []).append(cell)
    return found


def _ran_cells(allowed: Mapping[str, Sequence[CellRecord]], points: Points) -> Sequence[RanCell]:
    """Return the cells of a matrix; their points if a run passed some and failed at the next."""

    def measuring(cell: CellRecord) -> Sequence[MessagePoint]:
        return points(cell) if cell.outcome.measurements else ()

    cells = [_ran(several, measuring) for several in allowed.values()]
    if not any(map(stopped_between_points, cells)):
        return cells
    # Only now the points of the other failed cells are worth reading.
    return by_point([_ran(several, points) for several in allowed.values()])


def _ran(several: Sequence[CellRecord], points: Points) -> RanCell:
    ran = [cell for cell in several if cell.outcome.kind is not Kind.SKIPPED]
    facts = next((cell.outcome.facts for cell in ran if cell.outcome.facts), {})
    asked = next((points(cell) if cell.outcome.kind not in _GOOD else _measured(cell.outcome) for cell in ran), ())
    ends = [end for cell in ran for end in _ends(cell.outcome, asked)]
    return RanCell(several[0].axes, facts, ends, point_values(asked))


def _measured(outcome: Outcome) -> Sequence[MessagePoint]:
    return tuple(dict.fromkeys(one.point for one in outcome.measurements))


def _ends(outcome: Outcome, asked: Sequence[MessagePoint]) -> Iterator[RunEnd]:
    return ends_of(outcome, points_before_end(outcome.kind, _measured(outcome), asked))


Boundaries = Mapping[str, Sequence[Summary]]
"""The conditions of the failures of a run, by matrix."""


def of_cell(found: Boundaries, cell: CellRecord) -> Summary | None:
    """Return the condition of the failure of a cell."""
    signature = cell.outcome.signature
    return next((one for one in found.get(cell.matrix, ()) if signature and one.key == signature.key), None)


def paragraphs(found: Boundaries, escape: Callable[[str], str]) -> Iterator[str]:
    """Yield the section of the summary, one item per condition."""
    if not any(found.values()):
        return
    yield "## Where it fails"
    for matrix, several in found.items():
        if len(found) > 1:
            yield f"### {escape(matrix)}"
        for one in several:
            (key, state), *facts = boundary_lines(one)
            lines = [f"- **{escape(key)}** ({state})", *(f"  - {name}: {escape(text)}" for name, text in facts)]
            yield "\n".join(lines)


def page_conditions(found: Boundaries, cells: Sequence[CellRecord]) -> list[dict[str, Any]]:
    """Return the conditions for the page. `cells` of each is a hexadecimal number with bit i for cell i of the run."""
    places = {(cell.matrix, cell.scenario): place for place, cell in enumerate(cells)}
    made = []
    for matrix, several in found.items():
        ids = list(allowed_cells(cells, matrix))
        for one in several:
            mask = sum(1 << places[matrix, ids[number]] for number in one.cells)
            (key, state), *facts = ((one_line(name), one_line(text, _LONGEST)) for name, text in boundary_lines(one))
            made.append({"matrix": matrix, "key": key, "state": state, "facts": facts, "cells": f"{mask:x}"})
    return made
