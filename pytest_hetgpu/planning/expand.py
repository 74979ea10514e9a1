"""Expansion of a matrix into scenarios: deterministic order, unique ids, every rule used."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.config.matrix.diagnostics import Diagnostics
from pytest_hetgpu.config.matrix.matrix import Matrix, Rule
from pytest_hetgpu.config.matrix.references import Cells as AllCells
from pytest_hetgpu.config.matrix.references import references
from pytest_hetgpu.config.matrix.settings import check_settings
from pytest_hetgpu.errors import MatrixError
from pytest_hetgpu.model.job import Exclusion, Expectation, Scenario
from pytest_hetgpu.model.thresholds import PerformanceReference

LONGEST_ID = 120

Cell = tuple[str, ...]
Cells = dict[Cell, Exclusion | None]


def expand(matrix: Matrix) -> list[Scenario]:
    """Expand a matrix into its cells in file order, excluded ones included.

    Raises MatrixError: two cells of one id, a rule that matches nothing, values that disagree, nothing left to run.
    """
    diagnostics = Diagnostics(matrix.file)
    cells = _cells(matrix, diagnostics)
    expected = _expectations(matrix, cells, diagnostics)
    ids = _ids(matrix, cells, diagnostics)
    check_settings(matrix, [cell for cell, exclusion in cells.items() if exclusion is None], diagnostics)
    if diagnostics:
        raise MatrixError(diagnostics.listed())
    all_cells = AllCells(cells, {cell: name for name, cell in ids.items()})
    speeds = references(matrix, all_cells, diagnostics)
    least = _efficiencies(matrix, all_cells, diagnostics)
    if diagnostics:
        raise MatrixError(diagnostics.listed())
    axes = tuple(axis.name for axis in matrix.axes)
    return [
        Scenario(
            matrix.name,
            name,
            name,
            axes,
            values,
            expected.get(values, ()),
            cells[values],
            (*speeds.get(values, ()), *least.get(values, ())),
            matrix.axis_value(axes[0], values[0]).scaling,
        )
        for name, values in ids.items()
    ]


def _efficiencies(
    matrix: Matrix, cells: AllCells, diagnostics: Diagnostics
) -> Mapping[Cell, tuple[PerformanceReference, ...]]:
    if not matrix.efficiencies:
        return {}
    from pytest_hetgpu.config.matrix.efficiency import efficiencies

    return efficiencies(matrix, cells, diagnostics)


def cell_id(values: Sequence[str]) -> str:
    """Join the values' names. A very long id is cut and ends in a hash, as it names a folder too."""
    name = "-".join(values)
    if len(name) <= LONGEST_ID:
        return name
    return f"{name[: LONGEST_ID - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _cells(matrix: Matrix, diagnostics: Diagnostics) -> Cells:
    """Return every cell with its exclusion. Includes apply after excludes, so an include is an exception to them."""
    axes = [[value.name for value in axis.values] for axis in matrix.axes]
    cells: Cells = dict.fromkeys(itertools.product(*axes))
    for rule in matrix.exclude:
        hits = [cell for cell in _combinations(matrix, rule) if cell in cells]
        if not hits:
            diagnostics.add(rule.origin.line, "this exclude matches no cell")
        for cell in hits:
            # The first rule that matches gives the reason.
            cells[cell] = cells[cell] or rule.exclusion
    for rule in matrix.include:
        added = _added(matrix, rule, cells)
        if not added:
            diagnostics.add(rule.origin.line, "this include adds no cell: every one it names is in the matrix already")
        cells.update(dict.fromkeys(added))
    if None not in cells.values():
        diagnostics.add(matrix.exclude[0].origin.line, f"nothing to run: all {len(cells)} cells are excluded")
    return cells


def _added(matrix: Matrix, rule: Rule, cells: Cells) -> Sequence[Cell]:
    return [cell for cell in _combinations(matrix, rule) if cell not in cells or cells[cell]]


def included(matrix: Matrix) -> frozenset[Cell]:
    """Return the cells that only an include gives: excluded ones, or with values off the axes."""
    bare = _cells(replace(matrix, include=()), Diagnostics(matrix.file))
    return frozenset(cell for rule in matrix.include for cell in _added(matrix, rule, bare))


def _combinations(matrix: Matrix, rule: Rule) -> Iterator[Cell]:
    """Return every combination of values that a rule names, whether or not it is a cell."""
    return itertools.product(*(rule.where.get(axis.name) or matrix.names(axis.name) for axis in matrix.axes))


def _expectations(matrix: Matrix, cells: Cells, diagnostics: Diagnostics) -> Mapping[Cell, tuple[Expectation, ...]]:
    """Return the expectations of each cell that has any, in file order."""
    found: dict[Cell, tuple[Expectation, ...]] = {}
    for rule in matrix.expect:
        hits = [cell for cell in _combinations(matrix, rule) if cell in cells and cells[cell] is None]
        if not hits:
            diagnostics.add(rule.origin.line, "this expect matches no cell that is run")
        for cell in hits:
            found[cell] = (*found.get(cell, ()), *filter(None, (rule.expectation,)))
    return found


def _ids(matrix: Matrix, cells: Cells, diagnostics: Diagnostics) -> Mapping[str, Cell]:
    """Return each cell by its id."""
    ids: dict[str, Cell] = {}
    clashes: dict[tuple[Cell, Cell], str] = {}
    for cell in cells:
        name = cell_id(cell)
        other = ids.setdefault(name, cell)
        if other is not cell:
            differing = [place for place, value in enumerate(cell) if value != other[place]]
            clashes.setdefault((_describe(matrix, other, differing), _describe(matrix, cell, differing)), name)
    for (one, other), name in clashes.items():
        last = matrix.axis_value(matrix.axes[-1].name, ids[name][-1])
        diagnostics.add(
            last.origin.line, f"{' '.join(one)} and {' '.join(other)} give two cells one id ({name}); rename a value"
        )
    return ids


def _describe(matrix: Matrix, cell: Cell, places: Sequence[int]) -> Cell:
    return tuple(f"{matrix.axes[place].name} {cell[place]!r}" for place in places)
