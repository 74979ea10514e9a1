"""Variants of a cell for further runs: other settings, parameters or nodes than the matrix gives it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_hetgpu.config.matrix.matrix import MAIN_AXES, MAPS, Axis, Matrix
from pytest_hetgpu.model.job import Hardware, Scenario
from pytest_hetgpu.planning.matrix_set import MatrixSet

_PLACEMENT, _TRANSPORT, _WORKLOAD = MAIN_AXES


@dataclass(frozen=True, slots=True)
class Variant:
    """The differences of a run from its cell.

    `settings` are keys of a matrix with their values as source text, such as `sizes`. `mca` and `env` are parameters
    and variables; None removes one. `nodes` is the hardware of another placement's nodes.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    mca: Mapping[str, str | None] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()

    @property
    def maps(self) -> Mapping[str, Mapping[str, str | None]]:
        """The parameters and variables by the key of their map."""
        return {"mca": self.mca, "env": self.env}


def of_point(point: Mapping[str, str]) -> Variant:
    """Return the variant that measures one point only."""
    keys = {"size": "sizes", "dtype": "dtype"}
    settings: dict[str, Any] = {keys[name]: [value] for name, value in point.items() if name in keys}
    if point.get("place") == "in":
        settings["in_place"] = "true"
    return Variant(settings)


def with_variant(suite: MatrixSet, scenario: Scenario, variant: Variant) -> MatrixSet:
    """Return the matrices with a variant in place of a cell. Its job has the id and the label of the cell."""
    matrix = suite.matrices[scenario.matrix]
    return replace(suite, matrices={**suite.matrices, matrix.name: varied(matrix, scenario, variant)})


def varied(matrix: Matrix, scenario: Scenario, variant: Variant) -> Matrix:
    """Return a matrix whose values are those of the cell only, with the differences."""
    mine = {
        axis.name: matrix.axis_value(axis.name, value) for axis, value in zip(matrix.axes, scenario.values, strict=True)
    }
    below = tuple(matrix.below(mine[_TRANSPORT]))
    changed = {name: replace(value, raw=_without(value.raw, variant)) for name, value in mine.items()}
    for key, value in variant.settings.items():
        owner = next((name for name in changed if key in mine[name].raw), None) or _owner(matrix, scenario, key)
        changed[owner] = replace(changed[owner], raw={**changed[owner].raw, key: value})
    for key, parts in variant.maps.items():
        if given := {name: value for name, value in parts.items() if value is not None}:
            raw = changed[_TRANSPORT].raw
            changed[_TRANSPORT] = replace(changed[_TRANSPORT], raw={**raw, key: {**raw.get(key, {}), **given}})
    if variant.nodes:
        changed[_PLACEMENT] = replace(changed[_PLACEMENT], nodes=variant.nodes)
    return replace(
        matrix,
        axes=tuple(Axis(name, (value,)) for name, value in changed.items()),
        transports={**matrix.transports, **{one.name: replace(one, raw=_without(one.raw, variant)) for one in below}},
        hardware={name: _hardware_without(kind, variant) for name, kind in matrix.hardware.items()},
        extra={},
        _cache={},
    )


def _owner(matrix: Matrix, scenario: Scenario, key: str) -> str:
    """Return the axis whose value gets a setting that no value of the cell has."""
    return _WORKLOAD if key in matrix.takes(_WORKLOAD, scenario.value(_WORKLOAD)) else _PLACEMENT


def _without(raw: Mapping[str, Any], variant: Variant) -> dict[str, Any]:
    """Return the settings of a value without those parameters and variables that the variant sets or removes."""
    kept = {key: value for key, value in raw.items() if key not in MAPS}
    for key, parts in variant.maps.items():
        if left := {name: value for name, value in raw.get(key, {}).items() if name not in parts}:
            kept[key] = left
    return kept


def _hardware_without(kind: Hardware, variant: Variant) -> Hardware:
    def left(given: Mapping[str, str], parts: Mapping[str, str | None]) -> Mapping[str, str]:
        return {name: value for name, value in given.items() if name not in parts}

    return replace(kind, mca=left(kind.mca, variant.mca), env=left(kind.env, variant.env))
