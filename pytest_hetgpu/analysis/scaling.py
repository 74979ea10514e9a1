"""How a workload gets on with more ranks: efficiency of cells that differ in nothing but how many there are.

Strong scaling is the same problem on more ranks, weak scaling a problem that grows with them (Amdahl 1967, Gustafson
1988). With the time t or the rate r of the fewest ranks n0, and those of n ranks:

| what is measured | scaling | efficiency |
|---|---|---|
| a rate over all ranks of one fixed problem (`intervals` of `pi_trapezoid`) | strong | r n0 / (r0 n) = t0 n0 / (t n) |
| a rate over all ranks that each bring their own part (`samples` of training) | weak | r n0 / (r0 n) |
| busbw of a collective, which is the same for any n where links are the limit | weak | busbw / busbw0 |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_hetgpu.model.records import Measurement, MessagePoint

STRONG, WEAK = "strong", "weak"
_SCALED_BY = {"intervals": STRONG, "samples": WEAK, "busbw": WEAK}


@dataclass(frozen=True, slots=True)
class Cell:
    """What is compared: a passed cell's axes and measurements."""

    axes: Mapping[str, str]
    measurements: Sequence[Measurement]


@dataclass(frozen=True, slots=True)
class Step:
    """One number of ranks: on which value of the axis, with what (in `unit`), and how efficient (1 is perfect)."""

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


def curves(cells: Iterable[Cell]) -> tuple[Curve, ...]:
    """Every curve of two or more numbers of ranks, in the order in which its first cell stands.

    Of a metric at several message sizes the largest tells; where one number of ranks stands twice the first counts.
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


def _telling(cell: Cell) -> Measurement | None:
    """The one measurement that a cell scales by, None where it has none."""
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
