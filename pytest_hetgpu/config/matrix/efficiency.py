"""Least parallel efficiencies of a matrix as references of single cells: fractions of the speed of another cell.

t, r and n are a time, a rate over all ranks and the number of ranks, t0, r0 and n0 those of the smallest cell.

| metric | scaling | efficiency | fraction t0 / t or r / r0 of an efficiency e |
|---|---|---|---|
| a time | weak (Gustafson 1988) | t0 / t | e |
| a time | strong (Amdahl 1967) | t0 n0 / (t n) | e n / n0 |
| a rate | both | r n0 / (r0 n) | e n / n0 |
| busbw, the load of each link | weak | busbw / busbw0 | e |
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.config.matrix.diagnostics import Diagnostics
from pytest_hetgpu.config.matrix.matrix import EfficiencyRule, Matrix
from pytest_hetgpu.config.matrix.references import Cell, Cells
from pytest_hetgpu.model.messages import known
from pytest_hetgpu.model.quantities import HIGHER, MetricKind, no_direction
from pytest_hetgpu.model.thresholds import PerformanceReference


def efficiencies(
    matrix: Matrix, cells: Cells, diagnostics: Diagnostics
) -> Mapping[Cell, tuple[PerformanceReference, ...]]:
    """Return the references of the cells of all series. Add an error for a series that cannot have one."""
    found: dict[Cell, tuple[PerformanceReference, ...]] = {}
    axes = tuple(axis.name for axis in matrix.axes)
    for rule in matrix.efficiencies:
        for cell in (cell for cell, excluded in cells.excluded.items() if not excluded):
            if all(value in rule.where[axis] for axis, value in zip(axes, cell, strict=True)):
                found[cell] = (*found.get(cell, ()), *_reference(matrix, rule, cell, cells, diagnostics))
    return found


def _reference(
    matrix: Matrix, rule: EfficiencyRule, cell: Cell, cells: Cells, diagnostics: Diagnostics
) -> tuple[PerformanceReference, ...]:
    base = (rule.base, *cell[1:])
    line = rule.origin.line
    if cells.excluded.get(base, True):
        diagnostics.add(line, f"the efficiency of {cells.ids[cell]} needs {'-'.join(base)}, which is not run")
        return ()
    mine, smallest = (matrix.settings(values) for values in (cell, base))
    scaling, kinds = matrix.axis_value("placement", cell[0]).scaling, mine.workload.metrics()
    metric = (scaling.metric if scaling else "") or next(iter(kinds or ()), "")
    kind = (kinds or {}).get(metric)
    problem = _problem(cell[2], metric, kinds)
    ranks, fewest = (len(one.nodes) * one.options.ranks_per_node for one in (mine, smallest))
    if not problem and metric == "busbw" and fewest < 2:
        problem = f"one rank moves no data: a series of {cell[2]!r} with an efficiency begins at two ranks"
    if problem:
        diagnostics.add(line, f"scaling.reference: {problem}")
        return ()
    efficiency = fraction = rule.efficiency[cell[0]]
    if metric != "busbw" and ((kind and kind.better == HIGHER) or mine.workload.scaling == "strong"):
        fraction *= ranks / fewest
    return (
        PerformanceReference(
            str(rule.origin),
            metric,
            of="cell",
            cell=cells.ids[base],
            fraction=fraction,
            # As in the table of efficiencies, the largest message counts.
            min_size=max((point.size for point in mine.workload.points()), default=0),
            tolerance=rule.tolerance,
            efficiency=efficiency,
        ),
    )


def _problem(workload: str, metric: str, kinds: Mapping[str, MetricKind] | None) -> str:
    """Return why an efficiency by this metric cannot be computed, "" if it can."""
    if kinds == {}:
        return f"workload {workload!r} measures nothing"
    kind = (kinds or {}).get(metric)
    if kind is None:
        if kinds:
            return f"workload {workload!r} has no metric {metric!r} {known(metric, kinds)}"
        return f"only a run shows the metrics of workload {workload!r}: set `metric` and `unit` beside its patterns"
    if kind.unit is None and not kind.better:
        return f"only a run shows the unit of {metric}: set `better: lower` or `better: higher` beside its pattern"
    return "" if kind.better else no_direction(metric, kind.unit or "")
