"""Scaling of a workload with its ranks: the efficiency of cells that differ in nothing but their number.

Strong scaling is the same problem on more ranks (Amdahl 1967). Weak scaling is a problem that grows with them
(Gustafson 1988). The symbols t0 and r0 are time and rate on the fewest ranks n0; t and r those on n ranks.

| metric | scaling | efficiency |
|---|---|---|
| a rate over all ranks (`intervals` of `pi_trapezoid`, `samples` of training) | strong, weak | r n0 / (r0 n) |
| a time of one whole problem | strong | t0 n0 / (t n) |
| a time of a problem that grows with the ranks | weak | t0 / t |
| busbw of a collective, which is the same for any n if links are the limit | weak | busbw / busbw0 |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pytest_hetgpu.analysis.significance import ratio_interval
from pytest_hetgpu.model.quantities import LOWER, better
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.scenario import Scaling

STRONG, WEAK = "strong", "weak"
_SCALED_BY = {"intervals": STRONG, "samples": WEAK, "busbw": WEAK}
# Series, axis, values of the other axes, kind, metric, point.
_Key = tuple[str, str, tuple[tuple[str, str], ...], str, str, MessagePoint]


@dataclass(frozen=True, slots=True)
class ScalingCell:
    """One passed cell: its axes and measurements; `series` is set for a cell of a series that the matrix asks for."""

    axes: Mapping[str, str]
    measurements: Sequence[Measurement]
    series: Scaling | None = None


class _Point(NamedTuple):
    """One cell of a curve: its measurement, its value of the axis, its share of communication."""

    measured: Measurement
    value: str
    communication: float | None


@dataclass(frozen=True, slots=True)
class Step:
    """One number of ranks: its value of the axis, its figure (in `unit`), and its efficiency (1 is perfect).

    `interval` holds the true efficiency with a probability of 95 %; None if the samples are too few to know it.
    `communication` is the share of a step's time in which a collective was under way, if a profiler measured it.
    """

    ranks: int
    value: str
    figure: float
    efficiency: float
    interval: tuple[float, float] | None = None
    communication: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """Cells that differ only in the value of `axis`, fewest ranks first; `others` are the values they share.

    `series` is the name of a series that the matrix asks for, else "".
    """

    series: str
    axis: str
    others: tuple[str, ...]
    kind: str
    metric: str
    unit: str
    point: MessagePoint
    steps: tuple[Step, ...]

    @property
    def knee(self) -> Step | None:
        """Return the last step to which it pays to add ranks; None if that is the last step of all.

        There the efficiency per time is best: the largest n x efficiency^2. Beyond it, twice the ranks work less than
        1.41 times as fast. Source: D. L. Eager, J. Zahorjan and E. D. Lazowska, "Speedup Versus Efficiency in Parallel
        Systems", IEEE Transactions on Computers 38 (1989).
        """
        best = max(self.steps, key=_power)
        return None if best is self.steps[-1] else best

    @property
    def knee_is_certain(self) -> bool:
        """Return whether every step beyond the knee is worse than the knee by the intervals, too."""
        knee = self.knee
        if knee is None or not (knee.interval or knee is self.steps[0]):
            return False
        low = knee.interval[0] if knee.interval else 1.0
        beyond = self.steps[self.steps.index(knee) + 1 :]
        return all(one.interval and one.ranks * one.interval[1] ** 2 < knee.ranks * low**2 for one in beyond)


def _power(step: Step) -> float:
    return step.ranks * step.efficiency**2


def curves(cells: Iterable[ScalingCell]) -> tuple[Curve, ...]:
    """Return curves of two or more numbers of ranks, in the order of their first cells.

    A metric with several message sizes counts at the largest. If a number of ranks occurs twice, the first one counts.
    """
    found: dict[_Key, list[_Point]] = {}
    for cell in cells:
        chosen = _telling(cell)
        if chosen is None:
            continue
        series, kind = (cell.series.name, cell.series.kind) if cell.series else ("", _SCALED_BY[chosen.metric])
        for axis in ("placement",) if cell.series else cell.axes:
            others = tuple((name, value) for name, value in cell.axes.items() if name != axis)
            key = (series, axis, others, kind, chosen.metric, chosen.point)
            found.setdefault(key, []).append(_Point(chosen, cell.axes[axis], _communication(cell)))
    made = (_curve(key, taken) for key, taken in found.items())
    return tuple(curve for curve in made if len(curve.steps) > 1)


def _communication(cell: ScalingCell) -> float | None:
    return next((one.value for one in cell.measurements if one.metric == "communication"), None)


def _telling(cell: ScalingCell) -> Measurement | None:
    """Return the measurement by which a cell scales, None if it has none."""
    own = cell.series.metric if cell.series else ""
    for metric in (own,) if own else _SCALED_BY:
        chosen = [
            one
            for one in cell.measurements
            if one.metric == metric and one.value > 0 and (cell.series or one.ranks > 0)
        ]
        if chosen:
            found = max(chosen, key=lambda one: (one.point.size, not one.point.place, one.point.dtype))
            return replace(found, ranks=cell.series.ranks) if cell.series else found
    return None


def _curve(key: _Key, taken: Sequence[_Point]) -> Curve:
    series, axis, others, kind, *_ = key
    by_ranks: dict[int, _Point] = {}
    for point in taken:
        by_ranks.setdefault(point.measured.ranks, point)
    ordered = [by_ranks[ranks] for ranks in sorted(by_ranks)]
    first = ordered[0].measured
    steps = tuple(_step(kind, first, point) for point in ordered)
    return Curve(series, axis, tuple(value for _, value in others), kind, first.metric, first.unit, first.point, steps)


def _step(kind: str, first: Measurement, point: _Point) -> Step:
    item = point.measured
    time = better(item) == LOWER
    share = 1.0 if item.metric == "busbw" or (time and kind == WEAK) else first.ranks / item.ranks
    gain = first.value / item.value if time else item.value / first.value
    before, now = (list(filter(lambda sample: sample > 0, one.samples)) for one in (first, item))
    inside = ratio_interval(before, now) if time else ratio_interval(now, before)
    interval = (inside[0] * share, inside[1] * share) if inside and item is not first else None
    return Step(item.ranks, point.value, item.value, gain * share, interval, point.communication)
