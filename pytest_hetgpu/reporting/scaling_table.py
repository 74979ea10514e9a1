"""The table of parallel efficiency over the number of ranks in `summary.md`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pytest_hetgpu.analysis.scaling import Curve, ScalingCell, curves
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.store.cells import RunRecord

_MOST_CURVES = 50


def paragraphs(record: RunRecord, escape: Callable[[str], str]) -> Iterator[str]:
    """Yield one table for all curves of the run; nothing if no cells differ in their ranks only."""
    cells = (
        ScalingCell({"matrix": cell.matrix, **cell.axes}, cell.outcome.measurements)
        for cell in record.cells
        if cell.outcome.kind is Kind.PASSED
    )
    found = curves(cells)
    if not found:
        return
    rows = [row for curve in found[:_MOST_CURVES] for row in _rows(curve, escape)]
    more = f"\n\nand {len(found) - _MOST_CURVES} more" if len(found) > _MOST_CURVES else ""
    head = "| cells | scaling | ranks | measured | efficiency |\n|---|---|---:|---:|---:|"
    yield "## Scaling"
    yield "\n".join([head, *rows]) + more


def _rows(curve: Curve, escape: Callable[[str], str]) -> Iterator[str]:
    shared = " ".join(curve.others[1:])
    at = f" at {curve.point}" if curve.metric == "busbw" else ""
    for step in curve.steps:
        figure = f"{step.figure:.4g} {curve.unit}".strip()
        who = escape(f"{shared}, {curve.axis} {step.value}{at}")
        yield f"| {who} | {curve.kind} | {step.ranks} | {curve.metric} {figure} | {step.efficiency:.0%} |"
