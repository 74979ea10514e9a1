"""The conditions of the failures of runs, by matrix: as facts, as a section of the summary, and for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pytest_hetgpu.analysis.boundary.jobs import NO_JOBS, CellJobs
from pytest_hetgpu.analysis.boundary.of_run import allowed_cells, matrices_of, with_left_out
from pytest_hetgpu.analysis.boundary.summary import Summary
from pytest_hetgpu.reporting.boundary_lines import boundary_lines
from pytest_hetgpu.store.cells import CellRecord, RunRecord
from pytest_hetgpu.store.events import Shrunk, Tried
from pytest_hetgpu.store.text import one_line

_LONGEST = 1000


def boundaries(
    cells: Sequence[CellRecord], jobs: CellJobs = NO_JOBS, trials: Sequence[Tried | Shrunk] = ()
) -> Iterator[tuple[str, tuple[Summary, ...]]]:
    """Yield each matrix with the conditions of its failures: of any failure, then of each key."""
    for one in matrices_of(cells, jobs, trials):
        yield one.matrix, tuple(one.summaries())


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


def page_conditions(found: Boundaries, record: RunRecord) -> list[dict[str, Any]]:
    """Return the conditions for the page. `cells` of each is a hexadecimal number with bit i for cell i of the run."""
    places = {(cell.matrix, cell.scenario): place for place, cell in enumerate(record.cells)}
    cells = with_left_out(record)
    made = []
    for matrix, several in found.items():
        ids = list(allowed_cells(cells, matrix))
        for one in several:
            inside = {(matrix, ids[number]) for number in one.cells}
            mask = sum(1 << place for identity, place in places.items() if identity in inside)
            (key, state), *facts = ((one_line(name), one_line(text, _LONGEST)) for name, text in boundary_lines(one))
            made.append({"matrix": matrix, "key": key, "state": state, "facts": facts, "cells": f"{mask:x}"})
    return made
