"""A run's cells as one grid a matrix: placements (and further axes) down, transports across, workloads in each cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.transport_classes import PATHS, UNKNOWN, describe_carriers
from pytest_hetgpu.store.cells import CellRecord

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


def carriers(grid: Grid) -> dict[str, str]:
    """Return what carried the data of each column's cells, in one line; columns of which nothing is known are left out.

    Cells of one column may differ, by their stacks or nodes: their components are put together by path.
    """
    seen: dict[str, dict[str, set[str]]] = {}
    for (_, column, _), outcome in grid.cells.items():
        for path, names in outcome.carried.items():
            seen.setdefault(column, {}).setdefault(path, set()).update(names)
    found = {column: _by_path(paths) for column, paths in seen.items()}
    return {column: describe_carriers(found[column]) for column in grid.columns if column in found}


def carried(grid: Grid, most: int) -> list[str]:
    """Return a line for each of the first `most` columns, `ucx-tcp: ucx/tcp (on-host)`, and how many more there are."""
    lines = [f"{column}: {line}" for column, line in carriers(grid).items()]
    return [*lines[:most], *((f"{len(lines) - most} more are in junit.xml",) if len(lines) > most else ())]


def _by_path(seen: Mapping[str, set[str]]) -> dict[str, tuple[str, ...]]:
    return {path: tuple(sorted(seen[path])) for path in (*PATHS, UNKNOWN) if path in seen}


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
