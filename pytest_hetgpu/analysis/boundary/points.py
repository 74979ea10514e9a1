"""Cells that measure several points: each point counts as a cell of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from pytest_hetgpu.analysis.boundary.condition import Ran, RunEnd
from pytest_hetgpu.analysis.boundary.runs import RanCell
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sizes import show_size
from pytest_hetgpu.model.verdict import Kind

MOST_POINTS = 20_000
"""The largest number of points of a matrix; cells of a larger one count as a whole."""


def point_values(points: Sequence[MessagePoint]) -> tuple[dict[str, str], ...]:
    """Return points as values of axes: `size`, `dtype` and `place`; none of an operation that moves no data."""
    named = ({"size": show_size(one.size), "dtype": one.dtype, "place": one.place or "out"} for one in points)
    return tuple(values if one.size else {} for one, values in zip(points, named, strict=True))


def points_before_end(kind: Kind, measured: Collection[MessagePoint], asked: Sequence[MessagePoint]) -> int | None:
    """Return how many points a run measured before it ended; None if results of any of them may be wrong."""
    if kind is Kind.WRONG_RESULT:
        return None
    return next((place for place, point in enumerate(asked) if point not in measured), len(asked))


def likely_points(
    measured: tuple[MessagePoint, ...], sweeps: Iterable[tuple[MessagePoint, ...]]
) -> tuple[MessagePoint, ...]:
    """Return the points that a run was to measure: the longest of the sweeps that begin with those it measured."""
    return max((one for one in sweeps if one[: len(measured)] == measured), key=len, default=measured)


def by_point(cells: Sequence[RanCell]) -> Sequence[RanCell]:
    """Return one entry per point of each cell.

    Only what differs between points becomes a value, unless the matrix has an axis of that name. Cells of too many
    points are returned as they are.
    """
    taken = {name for cell in cells for name in cell.values}
    seen: dict[str, set[str]] = {}
    for cell in cells:
        for point in cell.points:
            for name, value in point.items():
                seen.setdefault(name, set()).add(value)
    names = [name for name, values in seen.items() if len(values) > 1 and name not in taken]
    if not names or sum(max(1, len(cell.points)) for cell in cells) > MOST_POINTS:
        return cells
    return [one for number, cell in enumerate(cells) for one in _parts(replace(cell, number=number), names)]


def stopped_between_points(cell: RanCell) -> bool:
    """Return whether a run of a cell passed some of its points and failed at the next."""
    return any(0 < (end.passed or 0) < len(cell.points) for end in cell.ends)


def _parts(cell: RanCell, names: Sequence[str]) -> Iterator[RanCell]:
    if not cell.points:
        yield cell
    for place, point in enumerate(cell.points):
        ends = [found for end in cell.ends if (found := _at(end, place, len(cell.points)))]
        alone = [end for one, end in cell.of_points if one == point]
        yield replace(
            cell,
            values={**cell.values, **{name: point[name] for name in names if name in point}},
            ends=[*ends, *filter(None, alone)],
            points=(),
            of_points=(),
            point=point,
            refused=None in alone,
        )


def _at(end: RunEnd, place: int, count: int) -> RunEnd | None:
    """Return the end of a run at one of its points; None if it shows nothing about it.

    A run that failed before or after all of its points, or at an unknown one, failed at each.
    """
    if end.ran is Ran.PASSED or end.passed is None or end.passed >= count:
        return end
    if place < end.passed:
        return RunEnd(Ran.PASSED)
    return end if place == end.passed else None
