"""The cells of a run as one grid per matrix.

Placements (and further axes) are rows, transports are columns, and each entry holds the workloads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.transport_classes import PATHS, UNKNOWN, describe_carriers
from pytest_hetgpu.store.cells import CellRecord

TRANSPORT, WORKLOAD = "transport", "workload"


@dataclass(frozen=True, slots=True)
class Grid:
    """The grid of one matrix; `cells` maps (row, column, workload) to an outcome, and lacks missing combinations.

    A row is named by the values of all axes but transport and workload: `placement / tuning`. The order is that of the
    cells.
    """

    matrix: str
    axes: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    workloads: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Outcome]


def carriers_by_column(grid: Grid) -> dict[str, str]:
    """Return one line per column with the components that carried the data; omit columns without any.

    Cells of one column may differ by their stacks or nodes. Their components are merged by path.
    """
    seen: dict[str, dict[str, set[str]]] = {}
    for (_, column, _), outcome in grid.cells.items():
        for path, names in outcome.carried.items():
            seen.setdefault(column, {}).setdefault(path, set()).update(names)
    found = {column: _sort_by_path(paths) for column, paths in seen.items()}
    return {column: describe_carriers(found[column]) for column in grid.columns if column in found}


def carrier_lines(grid: Grid, most: int) -> list[str]:
    """Return a line per column, `ucx-tcp: ucx/tcp (on-host)`, at most `most`, and the number of the others."""
    lines = [f"{column}: {line}" for column, line in carriers_by_column(grid).items()]
    return [*lines[:most], *((f"{len(lines) - most} more are in junit.xml",) if len(lines) > most else ())]


def _sort_by_path(seen: Mapping[str, set[str]]) -> dict[str, tuple[str, ...]]:
    return {path: tuple(sorted(seen[path])) for path in (*PATHS, UNKNOWN) if path in seen}


def grids(cells: Iterable[CellRecord]) -> list[Grid]:
    """Build one grid per matrix, in the given order."""
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
