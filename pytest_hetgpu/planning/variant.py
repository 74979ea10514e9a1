"""Variants of a cell for further runs: other settings, parameters or nodes than the matrix gives it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_hetgpu.config.matrix.matrix import MAIN_AXES, MAPS, Axis, Matrix
from pytest_hetgpu.model.job import Hardware, Job, Scenario, Stack
from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.planning.rank_settings import rank_settings

_PLACEMENT, _TRANSPORT, _WORKLOAD = MAIN_AXES
# Variables without which no rank finds its program, its peers or its node.
_NEEDED = ("HETGPU_", "MASTER_", "PYTHON", "LD_", "PATH", "HOME", "OMP_NUM_THREADS", "RANK", "WORLD_SIZE", "LOCAL_")
# Parameters by which the daemons of a launcher reach each other.
_OF_DAEMONS = ("plm_", "oob_", "orte_", "prte_")


@dataclass(frozen=True, slots=True)
class Variant:
    """The differences of a run from its cell.

    `settings` are keys of a matrix with their values as source text, such as `sizes`. `mca` and `env` are parameters
    and variables that the ranks get, `dropped` those that they do not get. `values` are other values
    of the matrix by their axes. `nodes` is the hardware of other nodes, and `stack` another version of a stack of this
    machine.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    mca: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    nodes: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    stack: Stack | None = None

    @property
    def typed(self) -> tuple[str, ...]:
        """Return its parameters and variables as `NAME=VALUE`."""
        return tuple(f"{name}={value}" for name, value in {**self.mca, **self.env}.items())


def of_point(point: Mapping[str, str]) -> Variant:
    """Return the variant that measures one point only."""
    keys = {"size": "sizes", "dtype": "dtype"}
    settings: dict[str, Any] = {keys[name]: [value] for name, value in point.items() if name in keys}
    if point.get("place") == "in":
        settings["in_place"] = "true"
    return Variant(settings)


def job_settings(job: Job) -> dict[str, str]:
    """Return the MCA parameters and the variables that the ranks of a job get, without those that any rank needs."""
    argv = job.command.argv
    given = {argv[at + 1]: argv[at + 2] for at, token in enumerate(argv[:-2]) if token in ("--mca", "-mca")}
    found = {name: value for name, value in given.items() if not name.startswith(_OF_DAEMONS)}
    for _, variables in rank_settings(job):
        for name, value in variables.items():
            if not name.startswith(_NEEDED):
                found.setdefault(name.removeprefix("OMPI_MCA_"), value)
    return found


def nodes_name(nodes: Sequence[str]) -> str:
    """Return the name of a placement that the matrix does not have: `[amd, amd]`."""
    return f"[{', '.join(nodes)}]"


def with_variant(suite: MatrixSet, scenario: Scenario, variant: Variant) -> tuple[MatrixSet, Scenario]:
    """Return the matrices with a variant in place of a cell, and the variant as a cell."""
    matrix, changed = varied(suite.matrices[scenario.matrix], scenario, variant)
    suite = suite.with_stack(variant.stack) if variant.stack else suite
    matrices = {**suite.matrices, matrix.name: matrix}
    return replace(suite, matrices=matrices, dropped=suite.dropped | variant.dropped), changed


def varied(matrix: Matrix, scenario: Scenario, variant: Variant) -> tuple[Matrix, Scenario]:
    """Return a matrix whose values are those of a variant only, and the variant as a cell.

    It has the id and the label of the cell. Other nodes are a placement with a name of their own.
    """
    names = {**dict(zip(scenario.axes, scenario.values, strict=True)), **variant.values}
    scenario = replace(scenario, values=tuple(names.values()))
    mine = {axis: matrix.axis_value(axis, name) for axis, name in names.items()}
    taken = {"mca": variant.mca.keys(), "env": variant.env.keys()}
    changed = {name: replace(value, raw=_without(value.raw, taken)) for name, value in mine.items()}
    for key, value in variant.settings.items():
        owner = next((name for name in changed if key in mine[name].raw), None) or _owner(matrix, scenario, key)
        changed[owner] = replace(changed[owner], raw={**changed[owner].raw, key: value})
    for key, given in (("mca", variant.mca), ("env", variant.env)):
        raw = changed[_TRANSPORT].raw
        changed[_TRANSPORT] = replace(changed[_TRANSPORT], raw={**raw, key: {**raw.get(key, {}), **given}})
    if variant.nodes:
        changed[_PLACEMENT] = replace(changed[_PLACEMENT], name=nodes_name(variant.nodes), nodes=variant.nodes)
    below = {one.name: replace(one, raw=_without(one.raw, taken)) for one in matrix.below(mine[_TRANSPORT])}
    only = replace(
        matrix,
        axes=tuple(Axis(name, (value,)) for name, value in changed.items()),
        transports={**matrix.transports, **below},
        hardware={name: _hardware_without(kind, taken) for name, kind in matrix.hardware.items()},
        extra={},
        _cache={},
    )
    return only, replace(scenario, values=tuple(value.name for value in changed.values()))


def _owner(matrix: Matrix, scenario: Scenario, key: str) -> str:
    """Return the axis whose value gets a setting that no value of the cell has."""
    return _WORKLOAD if key in matrix.takes(_WORKLOAD, scenario.value(_WORKLOAD)) else _PLACEMENT


_Taken = Mapping[str, Collection[str]]


def _without(raw: Mapping[str, Any], taken: _Taken) -> dict[str, Any]:
    """Return the settings of a value without those parameters and variables that the variant sets."""
    kept = {key: value for key, value in raw.items() if key not in MAPS}
    for key, names in taken.items():
        if left := {name: value for name, value in raw.get(key, {}).items() if name not in names}:
            kept[key] = left
    return kept


def _hardware_without(kind: Hardware, taken: _Taken) -> Hardware:
    def left(given: Mapping[str, str], names: Collection[str]) -> Mapping[str, str]:
        return {name: value for name, value in given.items() if name not in names}

    return replace(kind, mca=left(kind.mca, taken["mca"]), env=left(kind.env, taken["env"]))
