"""A run's cells as one grid a matrix: placements (and further axes) down, transports across, workloads in each cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_hetgpu.evidence import Outcome
from pytest_hetgpu.reporting.cells import CellRecord

TRANSPORT, WORKLOAD = "transport", "workload"


@dataclass(frozen=True, slots=True)
class Grid:
    """`cells` maps (row, column, workload) to what became of it; a combination that the matrix lacks is not in it.

    A row is named by the values of all axes but transport and workload, `placement / tuning`; order is the cells' own.
    """

    matrix: str
    axes: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    workloads: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Outcome]


def grids(cells: Iterable[CellRecord]) -> list[Grid]:
    """One grid for each matrix, in the order given."""
    matrices: dict[str, list[CellRecord]] = {}
    for cell in cells:
        matrices.setdefault(cell.matrix, []).append(cell)
    return [_grid(matrix, members) for matrix, members in matrices.items()]


def _grid(matrix: str, cells: list[CellRecord]) -> Grid:
    axes = tuple(dict.fromkeys(axis for cell in cells for axis in cell.axes if axis not in (TRANSPORT, WORKLOAD)))
    placed: dict[tuple[str, str, str], Outcome] = {}
    for cell in cells:
        row = " / ".join(cell.axes.get(axis, "-") for axis in axes) or cell.label
        placed[row, cell.axes.get(TRANSPORT, "-"), cell.axes.get(WORKLOAD, "-")] = cell.outcome
    rows, columns, workloads = (tuple(dict.fromkeys(names)) for names in zip(*placed, strict=True))
    return Grid(matrix, axes, rows, columns, workloads, placed)
