"""Scaling of a workload with its ranks: the efficiency of cells that differ in nothing but their number.

Strong scaling is the same problem on more ranks (Amdahl 1967). Weak scaling is a problem that grows with them
(Gustafson 1988). The symbols t0 and r0 are time and rate on the fewest ranks n0; t and r those on n ranks.

| metric | scaling | efficiency |
|---|---|---|
| a rate over all ranks of one fixed problem (`intervals` of `pi_trapezoid`) | strong | r n0 / (r0 n) = t0 n0 / (t n) |
| a rate over all ranks that each bring their own part (`samples` of training) | weak | r n0 / (r0 n) |
| busbw of a collective, which is the same for any n if links are the limit | weak | busbw / busbw0 |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_hetgpu.model.records import Measurement, MessagePoint

STRONG, WEAK = "strong", "weak"
_SCALED_BY = {"intervals": STRONG, "samples": WEAK, "busbw": WEAK}


@dataclass(frozen=True, slots=True)
class ScalingCell:
    """One passed cell: its axes and measurements."""

    axes: Mapping[str, str]
    measurements: Sequence[Measurement]


@dataclass(frozen=True, slots=True)
class Step:
    """One number of ranks: its value of the axis, its figure (in `unit`), and its efficiency (1 is perfect)."""

    ranks: int
    value: str
    figure: float
    efficiency: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Cells that differ only in the value of `axis`, fewest ranks first; `others` are the values they share."""

    axis: str
    others: tuple[str, ...]
    kind: str
    metric: str
    unit: str
    point: MessagePoint
    steps: tuple[Step, ...]


def curves(cells: Iterable[ScalingCell]) -> tuple[Curve, ...]:
    """Return curves of two or more numbers of ranks, in the order of their first cells.

    A metric with several message sizes counts at the largest. If a number of ranks occurs twice, the first one counts.
    """
    found: dict[tuple[str, tuple[tuple[str, str], ...], str, MessagePoint], list[tuple[Measurement, str]]] = {}
    for cell in cells:
        chosen = _telling(cell)
        if chosen is None:
            continue
        for axis in cell.axes:
            others = tuple((name, value) for name, value in cell.axes.items() if name != axis)
            key = (axis, others, chosen.metric, chosen.point)
            found.setdefault(key, []).append((chosen, cell.axes[axis]))
    made = (_curve(axis, others, taken) for (axis, others, _, _), taken in found.items())
    return tuple(curve for curve in made if len(curve.steps) > 1)


def _telling(cell: ScalingCell) -> Measurement | None:
    """Return the measurement by which a cell scales, None if it has none."""
    for metric in _SCALED_BY:
        chosen = [one for one in cell.measurements if one.metric == metric and one.value > 0]
        if chosen:
            return max(chosen, key=lambda one: (one.point.size, not one.point.place, one.point.dtype))
    return None


def _curve(axis: str, others: tuple[tuple[str, str], ...], taken: Sequence[tuple[Measurement, str]]) -> Curve:
    by_ranks: dict[int, tuple[Measurement, str]] = {}
    for item, value in taken:
        by_ranks.setdefault(item.ranks, (item, value))
    ordered = [by_ranks[ranks] for ranks in sorted(by_ranks)]
    first = ordered[0][0]
    steps = tuple(Step(item.ranks, value, item.value, _efficiency(first, item)) for item, value in ordered)
    kind = _SCALED_BY[first.metric]
    return Curve(axis, tuple(value for _, value in others), kind, first.metric, first.unit, first.point, steps)


def _efficiency(first: Measurement, item: Measurement) -> float:
    gain = item.value / first.value
    return gain if first.metric == "busbw" else gain * first.ranks / item.ranks
