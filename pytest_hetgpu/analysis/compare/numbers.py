"""Measurements of cells before and after, compared like with like or not at all. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pytest_hetgpu.analysis.compare.sides import ChangeKind, Identity, Side
from pytest_hetgpu.model.quantities import LOWER, better
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sample import Sample, sample
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.run_summary import CellSummary

_ROUNDING = 1e-9


class Traits(NamedTuple):
    """Traits that must be equal for two numbers to be comparable; an unknown trait (0, "") matches any."""

    ranks: int = 0
    tool: str = ""
    memory: str = ""
    unit: str = ""

    def unlike(self, other: Traits) -> str:
        """Describe the difference, `2 ranks before, 4 after`; "" if they are alike."""
        pairs = [(*pair, name) for *pair, name in zip(self, other, _TRAITS, strict=True) if all(pair)]
        return ", ".join(f"{name} {old} before and {new} after" for old, new, name in pairs if old != new)


_TRAITS = ("ranks", "tool", "memory", "unit")


class MeasurementKey(NamedTuple):
    """Key of a measurement: a metric at a point."""

    metric: str
    point: MessagePoint


class MeasuredValue(NamedTuple):
    """One number of one run; `samples` are its repeats."""

    value: float
    traits: Traits
    samples: tuple[float, ...] = ()
    better: str = ""


@dataclass(frozen=True, slots=True)
class NumberChange:
    """A number on both sides, None for a side without it; `why` explains a missing or incomparable number."""

    matrix: str
    scenario: str
    metric: str
    point: MessagePoint
    unit: str
    kind: ChangeKind = ChangeKind.SAME
    before: Sample | None = None
    after: Sample | None = None
    why: str = ""

    @property
    def change(self) -> float | None:
        """Relative change: `-0.2` for a fifth less, infinite from nothing; None if it is not compared."""
        if self.before is None or self.after is None or self.kind is ChangeKind.UNLIKE:
            return None
        return relative(self.before.middle, self.after.middle)


def changes(before: Side, after: Side, tolerance: float) -> Iterator[NumberChange]:
    """Yield every number of cells that work on both sides; numbers of a failed cell are meaningless.

    `tolerance` is the allowed difference, as a share of the number before.
    """
    for identity, cells in after.cells.items():
        old, new = (_working(found) for found in (before.cells.get(identity, ()), cells))
        if old and new:
            yield from _of_cell(identity, old, new, tolerance)


def _working(cells: Sequence[CellSummary]) -> list[CellSummary]:
    working = (Kind.PASSED, Kind.SLOW)
    return [cell for cell in cells if cell.kind in working and cell.verdict is not Verdict.NOT_RUN]


def _rows(cells: Sequence[CellSummary]) -> dict[MeasurementKey, list[MeasuredValue]]:
    """Return all values of each number, the newest run's first."""
    found: dict[MeasurementKey, list[MeasuredValue]] = {}
    for cell in cells:
        for one in cell.measurements:
            traits = Traits(one.ranks, cell.tool, cell.memory, one.unit)
            found.setdefault(MeasurementKey(one.metric, one.point), []).append(
                MeasuredValue(one.value, traits, one.samples, better(one))
            )
    return found


def _of_cell(
    identity: Identity, old_cells: Sequence[CellSummary], new_cells: Sequence[CellSummary], tolerance: float
) -> Iterator[NumberChange]:
    olds, news = _rows(old_cells), _rows(new_cells)
    instead: set[MeasurementKey] = set()
    for measured, old in olds.items():
        row = NumberChange(*identity, *measured, old[0].traits.unit, before=_sample(old))
        if measured in news:
            yield _both(row, old, news[measured], tolerance)
            continue
        others = [other for other in news if other not in olds and _alike_but_for(measured, other)]
        instead.update(others)
        if others:
            why = f"{_kind(measured)} before and {', '.join(map(_kind, others))} after"
            yield replace(row, kind=ChangeKind.UNLIKE, why=why)
        elif row.before and len(old) * 2 >= len(old_cells):
            yield replace(row, kind=ChangeKind.WORSE, why="not measured any more")
    for measured, new in news.items():
        if measured not in olds and measured not in instead:
            yield NumberChange(*identity, *measured, new[0].traits.unit, ChangeKind.APPEARED, after=_sample(new))


def _alike_but_for(one: MeasurementKey, other: MeasurementKey) -> bool:
    """Return whether they differ in element type and place only."""
    return (one.metric, one.point.size) == (other.metric, other.point.size)


def _kind(measured: MeasurementKey) -> str:
    return f"{measured.point.dtype}{' in place' if measured.point.place else ''}"


def _sample(values: Sequence[MeasuredValue]) -> Sample | None:
    """Return the spread over runs; a single run has the spread of its repeats."""
    if len(values) == 1 and values[0].samples:
        found = sample(values[0].samples)
        return found and replace(found, of="repeat")
    return sample(value.value for value in values)


def _both(
    row: NumberChange, old: Sequence[MeasuredValue], new: Sequence[MeasuredValue], tolerance: float
) -> NumberChange:
    """Compare a number of both sides; only values that are like the newest one after count."""
    traits = new[0].traits
    like_before = [value for value in old if not value.traits.unlike(traits)]
    like_after = [value for value in new if not value.traits.unlike(traits)]
    before, after = _sample(like_before), _sample(like_after)
    if not like_before:
        return replace(row, kind=ChangeKind.UNLIKE, after=after, why=old[0].traits.unlike(traits))
    row = replace(row, unit=traits.unit or row.unit, before=before, after=after)
    if before is None or after is None:
        lacking = like_before if before is None else like_after
        how = ChangeKind.WORSE if before else ChangeKind.APPEARED if after else ChangeKind.SAME
        return replace(row, kind=how, why=f"{lacking[0].value:g} is no number")
    way = next((value.better for value in (*like_after, *like_before) if value.better), "")
    return replace(row, kind=change_kind(before, after, way, tolerance))


def relative(before: float, after: float) -> float:
    """Return the relative change: `-0.2` for a fifth less; infinite from nothing."""
    if before == after:
        return 0.0
    return (after - before) / before if before else math.inf


def change_kind(before: Sample, after: Sample, way: str, tolerance: float) -> ChangeKind:
    """Return whether a number is worse: less of a rate, more of a time; `way` is the direction that is better.

    It counts only beyond the tolerance, and outside the range of the runs before.
    """
    change = relative(before.middle, after.middle)
    if abs(change) <= tolerance + _ROUNDING or before.low <= after.middle <= before.high:
        return ChangeKind.SAME
    if not way:
        return ChangeKind.CHANGED
    return ChangeKind.WORSE if (change > 0) == (way == LOWER) else ChangeKind.BETTER
