"""Expansion of a matrix into scenarios: deterministic order, unique ids, every rule used."""

from __future__ import annotations

import hashlib
import itertools
import math
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
MOST_CELLS = 100_000

Cell = tuple[str, ...]
Cells = dict[Cell, Exclusion | None]


def expand(matrix: Matrix, most: float = MOST_CELLS) -> list[Scenario]:
    """Expand a matrix into its cells in file order, excluded ones included. There may be at most `most` cells.

    Raises MatrixError: too many cells, before they are made; two cells of one id, a rule that matches nothing, values
    that disagree, nothing left to run.
    """
    diagnostics = Diagnostics(matrix.file)
    _check_size(matrix, most)
    cells = _cells(matrix, diagnostics, most)
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


def _check_size(matrix: Matrix, most: float) -> None:
    """Raise MatrixError if the axes, or the values that an include names, make more than `most` cells."""
    diagnostics = Diagnostics(matrix.file)
    axes = {axis.name: len(axis.values) for axis in matrix.axes}
    if math.prod(axes.values()) > most:
        diagnostics.add(None, f"its axes make {_too_many(axes, most)}")
    for rule in matrix.include:
        named = {axis: len(accepted) for axis, accepted in _accepted(matrix, rule).items()}
        if math.prod(named.values()) > most:
            diagnostics.add(rule.origin.line, f"this include names {_too_many(named, most)}")
    if diagnostics:
        raise MatrixError(diagnostics.listed())


def _too_many(lengths: Mapping[str, int], most: float) -> str:
    product = " x ".join(f"{length} {axis}" for axis, length in lengths.items() if length > 1)
    return f"{math.prod(lengths.values()):,} cells; {_limit(most)} ({product})"


def _limit(most: float) -> str:
    advice = "give the axes fewer values, split the matrix, or raise the limit with --hetgpu-max-cells N"
    return f"at most {most:,} are allowed here: {advice}"


def _cells(matrix: Matrix, diagnostics: Diagnostics, most: float = math.inf) -> Cells:
    """Return every cell with its exclusion. Includes apply after excludes, so an include is an exception to them.

    Raises MatrixError for more than `most` cells.
    """
    axes = [[value.name for value in axis.values] for axis in matrix.axes]
    cells: Cells = dict.fromkeys(itertools.product(*axes))
    for rule in matrix.exclude:
        hits = _matching(matrix, rule, cells)
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
        if len(cells) > most:
            diagnostics.add(rule.origin.line, f"there are {len(cells):,} cells with this include; {_limit(most)}")
            raise MatrixError(diagnostics.listed())
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
    return itertools.product(*_accepted(matrix, rule).values())


def _accepted(matrix: Matrix, rule: Rule) -> Mapping[str, Sequence[str]]:
    """Return the values of each axis that a rule accepts, those off the axis too."""
    return {axis.name: rule.where.get(axis.name) or matrix.names(axis.name) for axis in matrix.axes}


def _matching(matrix: Matrix, rule: Rule, cells: Cells) -> list[Cell]:
    """Return the cells that a rule matches. It may name far more combinations than there are cells."""
    accepted = _accepted(matrix, rule)
    if math.prod(map(len, accepted.values())) <= len(cells):
        return [cell for cell in _combinations(matrix, rule) if cell in cells]
    wanted = [frozenset(names) for names in accepted.values()]
    return [cell for cell in cells if all(value in names for value, names in zip(cell, wanted, strict=True))]


def _expectations(matrix: Matrix, cells: Cells, diagnostics: Diagnostics) -> Mapping[Cell, tuple[Expectation, ...]]:
    """Return the expectations of each cell that has any, in file order."""
    found: dict[Cell, tuple[Expectation, ...]] = {}
    for rule in matrix.expect:
        hits = [cell for cell in _matching(matrix, rule, cells) if cells[cell] is None]
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
