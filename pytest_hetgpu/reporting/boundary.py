"""The conditions of the failures of runs, by matrix: as facts, as a section of the summary, and as `boundary.json`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pytest_hetgpu.analysis.boundary.condition import against_passes, conditions, judged
from pytest_hetgpu.analysis.boundary.runs import RanCell, runs_of, space_of
from pytest_hetgpu.analysis.boundary.space import Literal
from pytest_hetgpu.analysis.boundary.summary import Summary, summary
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.reporting.boundary_lines import boundary_lines, where
from pytest_hetgpu.store.cells import NEVER_STARTED, CellRecord
from pytest_hetgpu.store.redaction.redact import redact_json


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


def boundary_json(found: Boundaries) -> bytes:
    """Return the content of `boundary.json`: an object with a list of conditions per matrix."""
    content = {matrix: [_fields(one) for one in several] for matrix, several in found.items()}
    return (json.dumps({"matrices": redact_json(content)}, indent=1) + "\n").encode()


def _fields(one: Summary) -> dict[str, Any]:
    return {
        "key": one.key or None,
        "state": one.state,
        "where": where(one),
        "facts": dict(list(boundary_lines(one))[1:]),
        "terms": [[_literal(literal) for literal in term] for term in one.terms],
        "matching": one.support.matching,
        "run": one.support.run,
        "failing": one.support.failing,
        "others": one.support.beyond,
        "failing_others": one.support.failing_beyond,
        "required": [{"axis": each.axis, "values": each.values, "shown": each.shown} for each in one.required],
        "no_effect": dict(one.no_effect),
    }


def _literal(one: Literal) -> dict[str, Any]:
    return {"axis": one.axis, "relation": one.relation.value, "values": one.values}
