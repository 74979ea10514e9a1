"""The table of parallel efficiency over the number of ranks in `summary.md`, and the same for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pytest_hetgpu.analysis.scaling import Curve, ScalingCell, Step, curves
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.store.cells import RunRecord
from pytest_hetgpu.store.text import one_line

_MOST_CURVES = 50
# A slow cell has run to its end, and a series without it would seem to scale.
_MEASURED = (Kind.PASSED, Kind.SLOW)


def curves_of(record: RunRecord) -> tuple[Curve, ...]:
    """Return the curves of a run."""
    return curves(
        ScalingCell({"matrix": cell.matrix, **cell.axes}, cell.outcome.measurements, cell.scaling)
        for cell in record.cells
        if cell.outcome.kind in _MEASURED
    )


def paragraphs(record: RunRecord, escape: Callable[[str], str]) -> Iterator[str]:
    """Yield one table for all curves of the run, then their knees; nothing if no cells differ in their ranks only."""
    found = curves_of(record)
    if not found:
        return
    rows = [row for curve in found[:_MOST_CURVES] for row in _rows(curve, escape)]
    more = f"\n\nand {len(found) - _MOST_CURVES} more" if len(found) > _MOST_CURVES else ""
    head = (
        "| cells | scaling | ranks | measured | efficiency | 95 % interval | communication |\n"
        "|---|---|---:|---:|---:|---:|---:|"
    )
    yield "## Scaling"
    yield "\n".join([head, *rows]) + more
    yield "\n".join(f"- {escape(f'{_shared(curve)} ({curve.kind}): {knee(curve)}')}" for curve in found[:_MOST_CURVES])


def knee(curve: Curve) -> str:
    """Return in words where a curve stops scaling: `scales to 8 ranks (efficiency 81%); 40% at 16 ranks`."""
    last = curve.steps[-1]
    found = curve.knee
    if found is None:
        return f"scales to all {last.ranks} ranks (efficiency {last.efficiency:.0%})"
    beyond = curve.steps[curve.steps.index(found) + 1]
    first = f" (efficiency {found.efficiency:.0%})" if found is not curve.steps[0] else ""
    unsure = "" if curve.knee_is_certain else "; the samples do not prove it"
    to = f"{found.ranks} rank{'s' * (found.ranks > 1)}"
    return f"scales to {to}{first}; {beyond.efficiency:.0%} at {beyond.ranks} ranks{unsure}"


def curves_data(record: RunRecord) -> list[dict[str, Any]]:
    """Return the curves for the page: steps are `[ranks, value, figure, efficiency, low, high, communication]`."""
    return [
        {
            "name": one_line(_shared(curve)),
            "kind": curve.kind,
            "metric": one_line(f"{curve.metric} {curve.unit}".strip()),
            "knee": knee(curve),
            "steps": [_numbers(step) for step in curve.steps],
        }
        for curve in curves_of(record)[:_MOST_CURVES]
    ]


def _numbers(step: Step) -> list[Any]:
    low, high = step.interval or (step.efficiency, step.efficiency)
    return [
        step.ranks,
        one_line(step.value),
        *(float(f"{one:.5g}") for one in (step.figure, step.efficiency, low, high)),
        step.communication,
    ]


def _shared(curve: Curve) -> str:
    at = f" at {curve.point}" if curve.metric == "busbw" else ""
    return f"{' '.join(filter(None, (curve.series, *curve.others[1:])))}{at}"


def _rows(curve: Curve, escape: Callable[[str], str]) -> Iterator[str]:
    for step in curve.steps:
        figure = f"{step.figure:.4g} {curve.unit}".strip()
        who = escape(_shared(curve) if curve.series else f"{_shared(curve)}, {curve.axis} {step.value}")
        share = "" if step.communication is None else f"{step.communication:.0%}"
        inside = f"{step.interval[0]:.0%} to {step.interval[1]:.0%}" if step.interval else ""
        numbers = f"{escape(f'{curve.metric} {figure}')} | {step.efficiency:.0%} | {inside} | {share}"
        yield f"| {who} | {curve.kind} | {step.ranks} | {numbers} |"
