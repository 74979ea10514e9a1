"""Groups of cells that differ in their value on one ordered axis only. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.model.messages import known
from pytest_hetgpu.model.sizes import ordinal


@dataclass(frozen=True, slots=True)
class AxisGroup:
    """Cells with the same values on the `others` of the axes, in the order of the axis."""

    others: Mapping[str, str]
    cells: tuple[Scenario, ...]


def along(cells: Iterable[Scenario], axis: str) -> Iterator[AxisGroup]:
    """Yield the groups of the allowed cells that have an axis."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[Scenario]] = {}
    for cell in cells:
        if axis in cell.axes and not cell.excluded:
            pairs = zip(cell.axes, cell.values, strict=True)
            others = tuple((name, value) for name, value in pairs if name != axis)
            found.setdefault((cell.matrix, others), []).append(cell)
    for (_, others), group in found.items():
        yield AxisGroup(dict(others), tuple(sorted(group, key=lambda cell: ordinal(cell.value(axis)))))


def ends(cells: Sequence[Scenario], axis: str) -> tuple[Scenario, ...]:
    """Return the first and the last cell of each group, and all cells without that axis.

    Raises UsageError if no cell has the axis, or if its values have no order.
    """
    names = dict.fromkeys(name for cell in cells for name in cell.axes)
    if axis not in names:
        raise UsageError(f"--hetgpu-bisect: no matrix of this run has an axis {axis!r} {known(axis, names)}")
    values = dict.fromkeys(cell.value(axis) for cell in cells if axis in cell.axes)
    if odd := [value for value in values if not ordinal(value)]:
        raise UsageError(
            f"--hetgpu-bisect: the values of {axis} have no order: {odd[0]!r} is no size, number or version"
        )
    chosen = {(one.matrix, one.id) for group in along(cells, axis) for one in (group.cells[0], group.cells[-1])}
    return tuple(cell for cell in cells if axis not in cell.axes or (cell.matrix, cell.id) in chosen)
