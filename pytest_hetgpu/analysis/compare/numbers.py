"""What cells measured, held against what they measured before: like with like, or not at all. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pytest_hetgpu.analysis.compare.sides import Identity, Side, Way
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sample import Sample, sample
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.run_summary import PastCell

_TIMES = ("s", "ms", "us", "ns")
_ROUNDING = 1e-9


class Traits(NamedTuple):
    """What must be equal for two numbers to be comparable; what is not known (0, "") is like anything."""

    ranks: int = 0
    tool: str = ""
    memory: str = ""
    unit: str = ""

    def unlike(self, other: Traits) -> str:
        """In what they differ, `2 ranks before, 4 after`; "" where they are alike."""
        pairs = [(*pair, name) for *pair, name in zip(self, other, _TRAITS, strict=True) if all(pair)]
        return ", ".join(f"{name} {old} before and {new} after" for old, new, name in pairs if old != new)


_TRAITS = ("ranks", "tool", "memory", "unit")


class Measured(NamedTuple):
    """What is measured: a metric at a point."""

    metric: str
    point: MessagePoint


class Value(NamedTuple):
    """One number of one run; `samples` are what it repeated."""

    value: float
    traits: Traits
    samples: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class NumberChange:
    """A number on both sides, None where a side has none; `why` says why it is not there, or is not compared."""

    matrix: str
    scenario: str
    metric: str
    point: MessagePoint
    unit: str
    way: Way = Way.SAME
    before: Sample | None = None
    after: Sample | None = None
    why: str = ""

    @property
    def change(self) -> float | None:
        """`-0.2` for a fifth less than before, infinite where there was nothing; None where nothing is compared."""
        if self.before is None or self.after is None or self.way is Way.UNLIKE:
            return None
        return relative(self.before.middle, self.after.middle)


def changes(before: Side, after: Side, tolerance: float) -> Iterator[NumberChange]:
    """Every number of cells that work on both sides; of one that fails its numbers say nothing.

    `tolerance` is what a number may differ by, as a share of what it was.
    """
    for identity, cells in after.cells.items():
        old, new = (_working(found) for found in (before.cells.get(identity, ()), cells))
        if old and new:
            yield from _of_cell(identity, old, new, tolerance)


def _working(cells: Sequence[PastCell]) -> list[PastCell]:
    working = (Kind.PASSED, Kind.SLOW)
    return [cell for cell in cells if cell.kind in working and cell.verdict is not Verdict.NOT_RUN]


def _rows(cells: Sequence[PastCell]) -> dict[Measured, list[Value]]:
    """All values of each number, the newest run's first."""
    found: dict[Measured, list[Value]] = {}
    for cell in cells:
        for one in cell.measurements:
            traits = Traits(one.ranks, cell.tool, cell.memory, one.unit)
            found.setdefault(Measured(one.metric, one.point), []).append(Value(one.value, traits, one.samples))
    return found


def _of_cell(
    identity: Identity, old_cells: Sequence[PastCell], new_cells: Sequence[PastCell], tolerance: float
) -> Iterator[NumberChange]:
    olds, news = _rows(old_cells), _rows(new_cells)
    instead: set[Measured] = set()
    for measured, old in olds.items():
        row = NumberChange(*identity, *measured, old[0].traits.unit, before=_sample(old))
        if measured in news:
            yield _both(row, old, news[measured], tolerance)
            continue
        others = [other for other in news if other not in olds and _alike_but_for(measured, other)]
        instead.update(others)
        if others:
            why = f"{_kind(measured)} before and {', '.join(map(_kind, others))} after"
            yield replace(row, way=Way.UNLIKE, why=why)
        elif row.before and len(old) * 2 >= len(old_cells):
            yield replace(row, way=Way.WORSE, why="not measured any more")
    for measured, new in news.items():
        if measured not in olds and measured not in instead:
            yield NumberChange(*identity, *measured, new[0].traits.unit, Way.APPEARED, after=_sample(new))


def _alike_but_for(one: Measured, other: Measured) -> bool:
    """Whether they are the same but for the element type and the place."""
    return (one.metric, one.point.size) == (other.metric, other.point.size)


def _kind(measured: Measured) -> str:
    return f"{measured.point.dtype}{' in place' if measured.point.place else ''}"


def _sample(values: Sequence[Value]) -> Sample | None:
    """Runs are what scatters; of a single one its repeats show how much."""
    if len(values) == 1 and values[0].samples:
        found = sample(values[0].samples)
        return found and replace(found, of="repeat")
    return sample(value.value for value in values)


def _both(row: NumberChange, old: Sequence[Value], new: Sequence[Value], tolerance: float) -> NumberChange:
    """A number that both sides have: of the runs before only those count that are like the newest after."""
    traits = new[0].traits
    like_before = [value for value in old if not value.traits.unlike(traits)]
    like_after = [value for value in new if not value.traits.unlike(traits)]
    before, after = _sample(like_before), _sample(like_after)
    if not like_before:
        return replace(row, way=Way.UNLIKE, after=after, why=old[0].traits.unlike(traits))
    row = replace(row, unit=traits.unit or row.unit, before=before, after=after)
    if before is None or after is None:
        lacking = like_before if before is None else like_after
        how = Way.WORSE if before else Way.APPEARED if after else Way.SAME
        return replace(row, way=how, why=f"{lacking[0].value:g} is no number")
    return replace(row, way=way(before, after, row.unit, tolerance))


def relative(before: float, after: float) -> float:
    """`-0.2` for a fifth less; infinite where there was nothing."""
    if before == after:
        return 0.0
    return (after - before) / before if before else math.inf


def way(before: Sample, after: Sample, unit: str, tolerance: float) -> Way:
    """Whether a number is worse: less of a bandwidth, more of a time.

    It must be off by more than the tolerance, and beyond whatever the runs before had shown themselves.
    """
    change = relative(before.middle, after.middle)
    if abs(change) <= tolerance + _ROUNDING or before.low <= after.middle <= before.high:
        return Way.SAME
    return Way.WORSE if (change > 0) == (unit in _TIMES) else Way.BETTER
