"""A valid matrix: its hardware, its axes with the settings of each value, its rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from pytest_hetgpu.config.matrix.diagnostics import Diagnostics
from pytest_hetgpu.config.matrix.models import Options, ReferenceShape
from pytest_hetgpu.config.matrix.source import Mapping as MappingNode
from pytest_hetgpu.errors import MatrixError
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.transports.base import Transport
from pytest_hetgpu.extensions.workloads.base import Workload
from pytest_hetgpu.model.job import Exclusion, Expectation, Hardware, Origin
from pytest_hetgpu.model.messages import show
from pytest_hetgpu.model.scenario import Scaling

COMMON = frozenset(Options.model_fields)
MAPS = frozenset(("env", "mca"))
ADDED = frozenset(("reference",))
"""Keys of which all that a cell's values give hold, side by side."""
MAIN_AXES = ("placement", "transport", "workload")


@dataclass(frozen=True, slots=True)
class AxisValue:
    """One value of an axis, with its settings `raw` as source text.

    `kind` is the family of a transport or the kind of a workload. `nodes`, `launch_from` and `master` name the hardware
    of a placement. `scaling` is set for a placement of a series over the number of ranks.
    """

    axis: str
    name: str
    raw: Mapping[str, Any]
    node: MappingNode
    origin: Origin
    kind: str = ""
    nodes: tuple[str, ...] = ()
    text: str = ""
    launch_from: str = ""
    master: str = ""
    scaling: Scaling | None = None

    def line(self, key: str, part: str | None = None) -> int:
        """Return the line that sets `key` (or the variable `part` of a map)."""
        child = self.node.entries.get(key)
        if part is not None and isinstance(child, MappingNode) and part in child.lines:
            return child.lines[part]
        return self.node.lines.get(key, self.node.line)


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis and its values, in file order."""

    name: str
    values: tuple[AxisValue, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: for each axis it names, the accepted values in file order."""

    kind: str
    where: Mapping[str, tuple[str, ...]]
    origin: Origin
    exclusion: Exclusion | None = None
    expectation: Expectation | None = None


@dataclass(frozen=True, slots=True)
class ReferenceRule:
    """A reference and its cells; `node` is its place in the file."""

    shape: ReferenceShape
    where: Mapping[str, tuple[str, ...]]
    node: MappingNode
    origin: Origin


@dataclass(frozen=True, slots=True)
class EfficiencyRule:
    """The least parallel `efficiency` of some placements of a series against its smallest placement, `base`."""

    base: str
    efficiency: Mapping[str, float]
    where: Mapping[str, tuple[str, ...]]
    tolerance: float
    origin: Origin


class CellSettings(NamedTuple):
    """The combined settings of one cell; the first node starts the job, or is the master, if none is named."""

    options: Options
    transport: Transport
    family: str
    workload: Workload
    nodes: tuple[str, ...]
    launch_from: str = ""
    master: str = ""

    @property
    def hardware(self) -> tuple[str, ...]:
        """Return the hardware of every node; a launch node without ranks is the last."""
        return (*self.nodes, self.launch_from) if self.launch_from else self.nodes


class Conflict(NamedTuple):
    """Two values of different axes that set one key differently."""

    one: AxisValue
    other: AxisValue
    key: str
    part: str | None


@dataclass(frozen=True)
class Matrix:
    """A matrix file, checked and ready to be expanded."""

    name: str
    file: str
    sha256: str
    hardware: Mapping[str, Hardware]
    axes: tuple[Axis, ...]
    transports: Mapping[str, AxisValue]
    include: tuple[Rule, ...]
    exclude: tuple[Rule, ...]
    expect: tuple[Rule, ...]
    extra: Mapping[tuple[str, str], AxisValue] = field(default_factory=dict)
    references: tuple[ReferenceRule, ...] = ()
    efficiencies: tuple[EfficiencyRule, ...] = ()
    _cache: dict[tuple[str, tuple[str, ...]], Any] = field(default_factory=dict, repr=False, compare=False)

    def axis_value(self, axis: str, name: str) -> AxisValue:
        """Return the value of that name, also if only an include defines it."""
        found = self._cache.get((axis, (name,)))
        if found is None:
            on_axis = (value for a in self.axes if a.name == axis for value in a.values if value.name == name)
            found = next(on_axis, None) or self.extra.get((axis, name)) or self.transports[name]
            self._cache[axis, (name,)] = found
        return found

    def settings(self, values: Sequence[str]) -> CellSettings:
        """Combine the settings of one cell. Raises MatrixError with both lines if two values disagree."""
        axis_values = tuple(self.axis_value(axis.name, value) for axis, value in zip(self.axes, values, strict=True))
        placement, transport, workload, *further = axis_values
        return CellSettings(
            options=self._options(axis_values),
            transport=self._cached("transport", (transport, *further), self._transport),
            family=transport.kind,
            workload=self._scaled(placement, self._cached("workload", (workload, *further), self._workload)),
            nodes=placement.nodes,
            launch_from=placement.launch_from,
            master=placement.master,
        )

    def words_of(self, axis: str, value: str) -> tuple[str, ...]:
        """Return the marks of a value: its name, its family or kind, the hardware and platforms of a placement."""
        axis_value = self.axis_value(axis, value)
        platforms = (self.hardware[name].accelerator.platform for name in axis_value.nodes)
        return tuple(dict.fromkeys(filter(None, (value, axis_value.kind, *axis_value.nodes, *platforms))))

    def words(self) -> tuple[str, ...]:
        """Return the marks of all cells."""
        axis_values = tuple(self.axis_values())
        platforms = (hardware.accelerator.platform for hardware in self.hardware.values())
        kinds = (f.kind for f in axis_values if f.kind)
        return tuple(dict.fromkeys((*(f.name for f in axis_values), *self.hardware, *platforms, *kinds)))

    def axis_values(self) -> Iterator[AxisValue]:
        """Yield every value: those on the axes, those that includes define, and transports beside the axis."""
        for axis in self.axes:
            yield from axis.values
        yield from self.extra.values()
        yield from self.transports.values()

    def names(self, axis: str) -> tuple[str, ...]:
        """Return the names of all values of an axis, those beside it included."""
        return tuple(axis_value.name for axis_value in self.axis_values() if axis_value.axis == axis)

    def takes(self, axis: str, name: str) -> frozenset[str]:
        """Return the settings of a transport or workload; a transport has those of the transports below it, too."""
        axis_value = self.axis_value(axis, name)
        if axis == "workload":
            return frozenset(find("workloads", axis_value.kind, Workload).Settings.model_fields)  # type: ignore[type-abstract]
        layers = (find("transports", one.kind, Transport) for one in (axis_value, *self.below(axis_value)))  # type: ignore[type-abstract]
        return frozenset(key for layer in layers for key in layer.Settings.model_fields)

    def check(self, axis: str, values: Sequence[str]) -> None:
        """Raise MatrixError if a transport or workload is invalid with these values of the further axes."""
        further = (
            self.axis_value(a.name, name) for a, name in zip(self.axes[len(MAIN_AXES) :], values[1:], strict=True)
        )
        make = self._transport if axis == "transport" else self._workload
        self._cached(axis, (self.axis_value(axis, values[0]), *further), make)

    def below(self, transport: AxisValue) -> Iterator[AxisValue]:
        """Yield the transports below one, from the next to the lowest."""
        while over := transport.raw.get("over"):
            transport = self.axis_value("transport", over)
            yield transport

    @staticmethod
    def _scaled(placement: AxisValue, workload: Workload) -> Workload:
        return workload.with_scaling(placement.scaling.kind) if placement.scaling else workload

    def _cached(self, kind: str, axis_values: tuple[AxisValue, ...], make: Any) -> Any:
        key = (f"={kind}", tuple(axis_value.name for axis_value in axis_values))
        if key not in self._cache:
            self._cache[key] = make(axis_values)
        return self._cache[key]

    def _options(self, axis_values: tuple[AxisValue, ...]) -> Options:
        for conflict in conflicts(axis_values):
            raise self.disagreement(conflict)
        merged: dict[str, Any] = {}
        # A transport below another one gives defaults, as hardware does.
        for axis_value in (*reversed(tuple(self.below(axis_values[1]))), *axis_values):
            for key, value in axis_value.raw.items():
                if key in COMMON - ADDED:
                    merged[key] = {**merged.get(key, {}), **value} if key in MAPS else value
        return Options.model_validate(merged)

    def _transport(self, axis_values: tuple[AxisValue, ...]) -> Transport:
        family = find("transports", axis_values[0].kind, Transport)  # type: ignore[type-abstract]
        raw = dict(self._owned(axis_values, family.Settings))
        over = axis_values[0].raw.get("over")
        lower = self._transport((self.axis_value("transport", over), *axis_values[1:])) if over else None
        return family(self._validated(family.Settings, raw, axis_values), lower)

    def _workload(self, axis_values: tuple[AxisValue, ...]) -> Workload:
        kind = find("workloads", axis_values[0].kind, Workload)  # type: ignore[type-abstract]
        return kind(self._validated(kind.Settings, dict(self._owned(axis_values, kind.Settings)), axis_values))

    def _owned(self, axis_values: Iterable[AxisValue], model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
        return (
            (key, f.raw[key]) for f in axis_values for key in f.raw if key in model.model_fields and key not in COMMON
        )

    def _validated(self, model: type[BaseModel], raw: dict[str, Any], axis_values: tuple[AxisValue, ...]) -> Any:
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            diagnostics = Diagnostics(self.file)
            for detail in error.errors(include_url=False):
                key = detail["loc"][0] if detail["loc"] else None
                setters = [f for f in axis_values if key in f.raw] or [axis_values[0]]
                diagnostics.details([detail], setters[-1].node, f"axes.{setters[-1].axis}.{setters[-1].name}", model)
            raise MatrixError(diagnostics.listed()) from None

    def disagreement(self, conflict: Conflict) -> MatrixError:
        """Describe a conflict: both lines and both values."""
        one, other, key, part = conflict
        name = f"{key}.{part}" if part else key
        first, second = (_written(f.raw[key][part] if part else f.raw[key]) for f in (one, other))
        diagnostics = Diagnostics(self.file)
        diagnostics.add(
            other.line(key, part),
            f"{other.axis} {other.name!r} sets {name} to {second}, but {one.axis} {one.name!r} "
            f"(line {one.line(key, part)}) sets it to {first}, and they meet in one cell",
        )
        return MatrixError(diagnostics.listed())


def _written(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else show(value)


def conflicts(axis_values: Sequence[AxisValue]) -> Iterator[Conflict]:
    """Yield the keys that two of these values, which are of different axes, set differently."""
    for index, other in enumerate(axis_values):
        for one in axis_values[:index]:
            for key in (key for key in one.raw if key in other.raw and key not in ADDED):
                mine, theirs = one.raw[key], other.raw[key]
                if key in MAPS:
                    parts = (part for part in mine if part in theirs and mine[part] != theirs[part])
                    yield from (Conflict(one, other, key, part) for part in parts)
                elif mine != theirs:
                    yield Conflict(one, other, key, None)
