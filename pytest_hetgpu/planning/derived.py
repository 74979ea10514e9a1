"""Cells that a matrix does not have, each with one difference from one that failed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pytest_hetgpu.config.matrix.matrix import MAIN_AXES, Matrix
from pytest_hetgpu.model.job import Job, Scenario
from pytest_hetgpu.planning.variant import Variant, job_settings, nodes_name

_PLACEMENT, _TRANSPORT, _ = MAIN_AXES
_WITH = " with "


@dataclass(frozen=True, slots=True)
class DerivedCell:
    """A cell with one difference: on the axes of `values` it has values of other names."""

    values: Mapping[str, str]
    variant: Variant
    reason: str


@dataclass(frozen=True, slots=True)
class Alias:
    """An axis whose value is named in a condition, and the name of an axis or fact that holds for the same cells."""

    axis: str
    other: str


@dataclass(frozen=True, slots=True)
class Doubts:
    """Open questions about a condition that no cell of a matrix answers: of two aliases, and whether `ranks` matter."""

    aliases: Collection[Alias] = ()
    ranks: bool = False


def derived_cells(
    matrix: Matrix, cells: Collection[tuple[str, ...]], scenario: Scenario, job: Job, doubts: Doubts
) -> Iterator[DerivedCell]:
    """Yield the cells that may be derived from a failing one.

    `cells` are the values of all cells of the matrix, excluded ones too.
    """
    yield from _on_other_nodes(matrix, scenario)
    yield from _without_settings(job, scenario, doubts.aliases)
    yield from _on_other_placements(matrix, cells, scenario, doubts.aliases)
    if doubts.ranks:
        yield from _with_fewer_ranks(job, scenario)


def _on_other_nodes(matrix: Matrix, scenario: Scenario) -> Iterator[DerivedCell]:
    """Yield a cell on two kinds of hardware on each alone and in the other order, unless a placement has such nodes."""
    nodes = matrix.settings(scenario.values).nodes
    kinds = tuple(dict.fromkeys(nodes))
    if len(kinds) != 2:
        return
    there = {matrix.axis_value(_PLACEMENT, name).nodes for name in matrix.names(_PLACEMENT)}
    for others in ((kinds[0],) * len(nodes), (kinds[1],) * len(nodes), tuple(reversed(nodes))):
        if others not in there:
            yield DerivedCell({_PLACEMENT: nodes_name(others)}, Variant(nodes=others), "on other nodes")


def _without_settings(job: Job, scenario: Scenario, aliases: Collection[Alias]) -> Iterator[DerivedCell]:
    """Yield a cell without a parameter or variable that holds for the same cells as one of its values."""
    settings = job_settings(job)
    for alias in aliases:
        if alias.other in settings and alias.axis in scenario.axes:
            values = {alias.axis: f"{scenario.value(alias.axis)} without {alias.other}"}
            yield DerivedCell(values, Variant(dropped=frozenset((alias.other,))), f"without {alias.other}")


def _on_other_placements(
    matrix: Matrix, cells: Collection[tuple[str, ...]], scenario: Scenario, aliases: Collection[Alias]
) -> Iterator[DerivedCell]:
    """Yield a cell on other placements, if its transport was on one only: an include adds such cells.

    Cells that a rule excludes are left out.
    """
    if not any({alias.axis, alias.other} == {_PLACEMENT, _TRANSPORT} for alias in aliases):
        return
    for name in matrix.names(_PLACEMENT):
        axes = {**dict(zip(scenario.axes, scenario.values, strict=True)), _PLACEMENT: name}
        excluded = any(
            all(axes[axis] in accepted for axis, accepted in rule.where.items() if accepted) for rule in matrix.exclude
        )
        if tuple(axes.values()) not in cells and not excluded:
            changed = {_PLACEMENT: name}
            yield DerivedCell(changed, Variant(values=changed), "on another placement")


def _with_fewer_ranks(job: Job, scenario: Scenario) -> Iterator[DerivedCell]:
    """Yield a cell with one rank on each of several nodes, or with two on a single one."""
    most = max((node.ranks for node in job.nodes), default=0)
    fewest = 1 if len(job.nodes) > 1 else 2
    if most > fewest:
        values = {_PLACEMENT: f"{scenario.value(_PLACEMENT)}{_WITH}{fewest * len(job.nodes)} ranks"}
        yield DerivedCell(values, Variant({"ranks_per_node": str(fewest)}), "with fewer ranks")


def has_same_nodes(axes: Mapping[str, str], values: Mapping[str, str]) -> bool:
    """Return whether a derived cell is on the nodes of its cell, by the values of both."""
    return _PLACEMENT not in values or values[_PLACEMENT].startswith(f"{axes[_PLACEMENT]}{_WITH}")
