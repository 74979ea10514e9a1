"""Least parallel efficiencies of a matrix as references of single cells: fractions of the speed of another cell.

t and n are the time of one operation and the number of ranks, t0 and n0 those of the smallest cell of the series.

| workload | scaling | efficiency | fraction t0 / t of an efficiency e |
|---|---|---|---|
| with a time | weak (Gustafson 1988) | t0 / t | e |
| with a time | strong (Amdahl 1967) | t0 n0 / (t n) | e n / n0 |
| with a busbw, whose factor of algbw is f | weak | busbw / busbw0 | e f0 / f |
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.config.matrix.diagnostics import Diagnostics
from pytest_hetgpu.config.matrix.matrix import EfficiencyRule, Matrix
from pytest_hetgpu.config.matrix.references import Cell, Cells
from pytest_hetgpu.model import metrics
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
    if not mine.workload.measured or not mine.workload.points():
        diagnostics.add(line, f"scaling.reference: workload {cell[2]!r} is not timed")
        return ()
    ranks, fewest = (len(one.nodes) * one.options.ranks_per_node for one in (mine, smallest))
    operation = mine.workload.measured_operation(2)
    efficiency = fraction = rule.efficiency[cell[0]]
    if metrics.has_bandwidth(operation):
        if fewest < 2:
            text = f"one rank moves no data: a series of {cell[2]!r} with an efficiency begins at two ranks"
            diagnostics.add(line, f"scaling.reference: {text}")
            return ()
        factor, first = (metrics.from_seconds("busbw", 1.0, operation, 10**9, number) for number in (ranks, fewest))
        fraction *= first / factor
    elif mine.workload.scaling == "strong":
        fraction *= ranks / fewest
    return (
        PerformanceReference(
            str(rule.origin),
            of="cell",
            cell=cells.ids[base],
            fraction=fraction,
            # As in the table of efficiencies, the largest message counts.
            min_size=max(point.size for point in mine.workload.points()),
            tolerance=rule.tolerance,
            efficiency=efficiency,
        ),
    )
