"""Reader of `scaling`: series of cells over the number of nodes, or of ranks on each node.

A series is an include whose placement is written once. It becomes one placement for each number.
Its name is `NAME-KIND-NODESxRANKS`: `mi250-weak-16x8`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.config.matrix.matrix import AxisValue, EfficiencyRule, Rule
from pytest_hetgpu.config.matrix.models import Options, Percent, Positive
from pytest_hetgpu.config.matrix.rules import RuleReader
from pytest_hetgpu.config.matrix.source import plain
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.shapes import Name, Shape
from pytest_hetgpu.extensions.workloads.base import Workload
from pytest_hetgpu.model.messages import known
from pytest_hetgpu.model.scenario import Scaling

_MOST = 4096
_Count = Annotated[int, Field(ge=1, le=_MOST)]
Counts = Annotated[
    tuple[_Count, ...],
    Field(min_length=1),
    BeforeValidator(
        lambda value: value if isinstance(value, list) else [value],
        json_schema_input_type=_Count | Annotated[list[_Count], Field(min_length=1)],
    ),
]
_KEYS = ("placement", "kind", "metric", "reference")
_STRUCTURE = ("name", "hardware", "nodes", "ranks_per_node", "launch_from")


class SeriesPlacementShape(Options):
    """The placements of a series: `nodes` of one hardware, with `ranks_per_node`. One of the two is a list."""

    hardware: Name
    name: Annotated[Name | None, Field(description="start of the names of its placements; else the hardware")] = None
    nodes: Counts = (1,)
    ranks_per_node: Counts = (1,)  # type: ignore[assignment]
    launch_from: Annotated[Name, Field(description="hardware of a node without ranks that starts the job")] | None = (
        None
    )

    @model_validator(mode="after")
    def _one_list(self) -> SeriesPlacementShape:
        lists = [counts for counts in (self.nodes, self.ranks_per_node) if len(counts) > 1]
        if len(lists) != 1:
            raise ValueError("give a list of two or more numbers either as nodes or as ranks_per_node: [1, 2, 4]")
        if list(lists[0]) != sorted(set(lists[0])):
            raise ValueError(f"the numbers must rise: {', '.join(map(str, lists[0]))} do not")
        return self

    @property
    def sizes(self) -> dict[int, tuple[int, int]]:
        """Return (nodes, ranks on each) of each number of the list."""
        if len(self.nodes) > 1:
            return {nodes: (nodes, self.ranks_per_node[0]) for nodes in self.nodes}
        return {ranks: (self.nodes[0], ranks) for ranks in self.ranks_per_node}


class SeriesReferenceShape(Shape):
    """The least efficiency at some numbers of the list."""

    efficiency: Annotated[dict[int, Positive], Field(min_length=1)]
    tolerance: Percent = 0.0


class SeriesShape(Shape):
    """A series without its values of the other axes.

    weak: every rank brings its own part of the problem. strong: all ranks share one problem.
    """

    placement: SeriesPlacementShape
    kind: Literal["weak", "strong"]
    metric: Annotated[Name | None, Field(description="figure of a workload `command`, a rate or a time")] = None
    reference: SeriesReferenceShape | None = None


class Series(NamedTuple):
    """The cells of all series as rules, and their least efficiencies."""

    rules: tuple[Rule, ...]
    efficiencies: tuple[EfficiencyRule, ...]


def read_series(rules: RuleReader, tree: source.Mapping, hardware: Mapping[str, object]) -> Series:
    """Read the key `scaling`, one map or a list of them. Its placements are added to `rules.extra`."""
    node = tree.entries.get("scaling")
    if isinstance(node, source.Mapping):
        node = source.Sequence(node.line, [node])
        tree = source.Mapping(tree.line, {"scaling": node}, tree.lines)
    readers = [_SeriesReader(rules, entry, hardware) for entry, _ in rules.entries(tree, "scaling")]
    found = [pair for reader in readers for pair in reader.read()]
    return Series(tuple(rule for rule, _ in found), tuple(least for _, least in found if least))


class _SeriesReader:
    """Reader of one series; errors are collected, never raised."""

    def __init__(self, rules: RuleReader, node: source.Mapping, hardware: Mapping[str, object]) -> None:
        self.rules = rules
        self.node = node
        self.hardware = hardware

    def read(self) -> Iterator[tuple[Rule, EfficiencyRule | None]]:
        rules, node = self.rules, self.node
        shape = self._shape()
        missing = [axis for axis in rules.axes if axis not in node.entries and axis != "placement"]
        if missing:
            text = f"this series names no {', '.join(missing)}; it must name a value of every axis"
            rules.diagnostics.add(node.line, text)
        if shape is None or missing:
            return
        others = {
            axis: tuple(dict.fromkeys(rules.included(axis, node.entries[axis], "scaling")))
            for axis in rules.axes
            if axis != "placement"
        }
        self._check_workloads(shape, others["workload"])
        placements = {size: self._placement(shape, *pair) for size, pair in shape.placement.sizes.items()}
        where = {"placement": tuple(placements.values()), **others}
        origin = rules.reader.origin(node.line)
        yield Rule("include", where, origin), self._efficiency(shape, placements, where)

    def _shape(self) -> SeriesShape | None:
        diagnostics, node = self.rules.diagnostics, self.node
        for key in (key for key in node.entries if key not in self.rules.axes and key not in _KEYS):
            hint = known(key, (*_KEYS, *self.rules.axes))
            diagnostics.add(node.lines[key], f"unknown axis or key {key!r} in scaling {hint}")
        own = source.Mapping(
            node.line, {key: child for key, child in node.entries.items() if key in _KEYS}, dict(node.lines)
        )
        try:
            shape = SeriesShape.model_validate(plain(own))
        except ValidationError as error:
            diagnostics.invalid(error, own, "scaling", SeriesShape)
            return None
        placed = node.entries["placement"]
        lines = placed.lines if isinstance(placed, source.Mapping) else {}
        for key in ("hardware", "launch_from"):
            name = getattr(shape.placement, key)
            if name and name not in self.hardware:
                line = lines.get(key, placed.line)
                diagnostics.add(line, f"scaling.placement: unknown hardware {name!r} {known(name, self.hardware)}")
        return shape

    def _placement(self, shape: SeriesShape, nodes: int, ranks: int) -> str:
        """Add one placement of the series, and return its name."""
        placed, rules = self.node.entries["placement"], self.rules
        assert isinstance(placed, source.Mapping)
        given = shape.placement
        series = f"{given.name or given.hardware}-{shape.kind}"
        name = f"{series}-{nodes}x{ranks}"
        raw = {key: value for key, value in plain(placed).items() if key not in _STRUCTURE}
        made = AxisValue(
            "placement",
            name,
            {**raw, "ranks_per_node": str(ranks)},
            placed,
            rules.reader.origin(placed.line),
            nodes=(given.hardware,) * nodes,
            launch_from=given.launch_from or "",
            scaling=Scaling(series, shape.kind, nodes * ranks, shape.metric or ""),
        )
        first = next((value for value in rules.values("placement") if value.name == name), None)
        if first and replace(first, node=made.node, origin=made.origin) != made:
            text = f"placement {name!r} is another one in line {first.origin.line}; give this series a name"
            rules.diagnostics.add(placed.line, text)
        rules.extra.setdefault(("placement", name), made)
        return name

    def _check_workloads(self, shape: SeriesShape, workloads: tuple[str, ...]) -> None:
        """Add an error for each workload that has no such series."""
        line = self.node.lines["workload"]
        for value in (one for one in self.rules.values("workload") if one.name in workloads):
            kinds = find("workloads", value.kind, Workload).scalings  # type: ignore[type-abstract]
            own = value.kind == "command"
            if shape.kind not in kinds:
                hint = f"only {kinds[0]} scaling" if kinds else "no scaling"
                self.rules.diagnostics.add(line, f"workload {value.name!r} ({value.kind}) has {hint}")
            elif own and not shape.metric:
                text = f"workload {value.name!r} is a program of your own: give `metric`, the figure by which it scales"
                self.rules.diagnostics.add(line, text)
            elif shape.metric and not own:
                text = f"metric is for workloads of kind command; {value.name!r} ({value.kind}) has its own"
                self.rules.diagnostics.add(self.node.lines["metric"], text)

    def _efficiency(
        self, shape: SeriesShape, placements: Mapping[int, str], where: Mapping[str, tuple[str, ...]]
    ) -> EfficiencyRule | None:
        asked = shape.reference
        if asked is None:
            return None
        reference = self.node.entries["reference"]
        line = reference.line
        first, *further = placements
        for size in (size for size in asked.efficiency if size not in further):
            why = "is the first, of which the others are a fraction" if size == first else "is none of its numbers"
            numbers = ", ".join(map(str, further))
            self.rules.diagnostics.add(line, f"scaling.reference.efficiency: {size} {why} ({numbers})")
            return None
        least = {placements[size]: value for size, value in asked.efficiency.items()}
        origin = self.rules.reader.origin(line)
        return EfficiencyRule(placements[first], least, {**where, "placement": tuple(least)}, asked.tolerance, origin)
