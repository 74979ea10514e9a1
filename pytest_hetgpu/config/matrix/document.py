"""A valid matrix: its hardware, its axes with the settings of each value, its rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from pytest_hetgpu.config.matrix.complaints import Complaints
from pytest_hetgpu.config.matrix.models import Options, ReferenceShape
from pytest_hetgpu.config.matrix.source import Mapping as MappingNode
from pytest_hetgpu.errors import MatrixError
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.transports.base import Transport
from pytest_hetgpu.extensions.workloads.base import Workload
from pytest_hetgpu.model.job import Exclusion, Expectation, Hardware, Origin
from pytest_hetgpu.model.messages import show

COMMON = frozenset(Options.model_fields)
MAPS = frozenset(("env", "mca"))
ADDED = frozenset(("reference",))
"""Keys of which all that a cell's values give hold, side by side."""
MAIN_AXES = ("placement", "transport", "workload")


@dataclass(frozen=True, slots=True)
class Fragment:
    """One value of an axis, with its settings `raw` as source text.

    `kind` is the family of a transport or the kind of a workload. `nodes` and `launch_from` name the hardware of a
    placement.
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
    values: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: for each axis it names, the accepted values in file order."""

    what: str
    where: Mapping[str, tuple[str, ...]]
    origin: Origin
    exclusion: Exclusion | None = None
    expectation: Expectation | None = None


@dataclass(frozen=True, slots=True)
class Stated:
    """A reference and its cells; `node` is its place in the file."""

    shape: ReferenceShape
    where: Mapping[str, tuple[str, ...]]
    node: MappingNode
    origin: Origin


class CellSettings(NamedTuple):
    """The combined settings of one cell; an empty `launch_from` means that the first node starts the job."""

    options: Options
    transport: Transport
    family: str
    workload: Workload
    nodes: tuple[str, ...]
    launch_from: str = ""

    @property
    def hardware(self) -> tuple[str, ...]:
        """Return the hardware of every node; a launch node without ranks is the last."""
        return (*self.nodes, self.launch_from) if self.launch_from else self.nodes


class Conflict(NamedTuple):
    """Two values of different axes that set one key differently."""

    one: Fragment
    other: Fragment
    key: str
    part: str | None


@dataclass(frozen=True)
class Document:
    """A matrix file, checked and ready to be expanded."""

    name: str
    file: str
    sha256: str
    hardware: Mapping[str, Hardware]
    axes: tuple[Axis, ...]
    transports: Mapping[str, Fragment]
    include: tuple[Rule, ...]
    exclude: tuple[Rule, ...]
    expect: tuple[Rule, ...]
    extra: Mapping[tuple[str, str], Fragment] = field(default_factory=dict)
    references: tuple[Stated, ...] = ()
    _cache: dict[tuple[str, tuple[str, ...]], Any] = field(default_factory=dict, repr=False, compare=False)

    def fragment(self, axis: str, name: str) -> Fragment:
        """Return the value of that name, also if only an include defines it."""
        found = self._cache.get((axis, (name,)))
        if found is None:
            on_axis = (value for a in self.axes if a.name == axis for value in a.values if value.name == name)
            found = next(on_axis, None) or self.extra.get((axis, name)) or self.transports[name]
            self._cache[axis, (name,)] = found
        return found

    def settings(self, values: Sequence[str]) -> CellSettings:
        """Combine the settings of one cell. Raises MatrixError with both lines if two values disagree."""
        fragments = tuple(self.fragment(axis.name, value) for axis, value in zip(self.axes, values, strict=True))
        placement, transport, workload, *further = fragments
        return CellSettings(
            options=self._options(fragments),
            transport=self._cached("transport", (transport, *further), self._transport),
            family=transport.kind,
            workload=self._cached("workload", (workload, *further), self._workload),
            nodes=placement.nodes,
            launch_from=placement.launch_from,
        )

    def words_of(self, axis: str, value: str) -> tuple[str, ...]:
        """Return the marks of a value: its name, its family or kind, the hardware and platforms of a placement."""
        fragment = self.fragment(axis, value)
        platforms = (self.hardware[name].accelerator.platform for name in fragment.nodes)
        return tuple(dict.fromkeys(filter(None, (value, fragment.kind, *fragment.nodes, *platforms))))

    def words(self) -> tuple[str, ...]:
        """Return the marks of all cells."""
        fragments = tuple(self.fragments())
        platforms = (hardware.accelerator.platform for hardware in self.hardware.values())
        kinds = (f.kind for f in fragments if f.kind)
        return tuple(dict.fromkeys((*(f.name for f in fragments), *self.hardware, *platforms, *kinds)))

    def fragments(self) -> Iterator[Fragment]:
        """Yield every value: those on the axes, those that includes define, and transports beside the axis."""
        for axis in self.axes:
            yield from axis.values
        yield from self.extra.values()
        yield from self.transports.values()

    def names(self, axis: str) -> tuple[str, ...]:
        """Return the names of all values of an axis, those beside it included."""
        return tuple(fragment.name for fragment in self.fragments() if fragment.axis == axis)

    def takes(self, axis: str, name: str) -> frozenset[str]:
        """Return the settings of a transport or workload; a transport has those of the transports below it, too."""
        fragment = self.fragment(axis, name)
        if axis == "workload":
            return frozenset(find("workloads", fragment.kind, Workload).Settings.model_fields)  # type: ignore[type-abstract]
        layers = (find("transports", one.kind, Transport) for one in (fragment, *self.below(fragment)))  # type: ignore[type-abstract]
        return frozenset(key for layer in layers for key in layer.Settings.model_fields)

    def check(self, axis: str, values: Sequence[str]) -> None:
        """Raise MatrixError if a transport or workload is invalid with these values of the further axes."""
        further = (self.fragment(a.name, name) for a, name in zip(self.axes[len(MAIN_AXES) :], values[1:], strict=True))
        make = self._transport if axis == "transport" else self._workload
        self._cached(axis, (self.fragment(axis, values[0]), *further), make)

    def below(self, transport: Fragment) -> Iterator[Fragment]:
        """Yield the transports below one, from the next to the lowest."""
        while over := transport.raw.get("over"):
            transport = self.fragment("transport", over)
            yield transport

    def _cached(self, what: str, fragments: tuple[Fragment, ...], make: Any) -> Any:
        key = (f"={what}", tuple(fragment.name for fragment in fragments))
        if key not in self._cache:
            self._cache[key] = make(fragments)
        return self._cache[key]

    def _options(self, fragments: tuple[Fragment, ...]) -> Options:
        for conflict in conflicts(fragments):
            raise self.disagreement(conflict)
        merged: dict[str, Any] = {}
        # A transport below another one gives defaults, as hardware does.
        for fragment in (*reversed(tuple(self.below(fragments[1]))), *fragments):
            for key, value in fragment.raw.items():
                if key in COMMON - ADDED:
                    merged[key] = {**merged.get(key, {}), **value} if key in MAPS else value
        return Options.model_validate(merged)

    def _transport(self, fragments: tuple[Fragment, ...]) -> Transport:
        family = find("transports", fragments[0].kind, Transport)  # type: ignore[type-abstract]
        raw = dict(self._owned(fragments, family.Settings))
        over = fragments[0].raw.get("over")
        lower = self._transport((self.fragment("transport", over), *fragments[1:])) if over else None
        return family(self._validated(family.Settings, raw, fragments), lower)

    def _workload(self, fragments: tuple[Fragment, ...]) -> Workload:
        kind = find("workloads", fragments[0].kind, Workload)  # type: ignore[type-abstract]
        return kind(self._validated(kind.Settings, dict(self._owned(fragments, kind.Settings)), fragments))

    def _owned(self, fragments: Iterable[Fragment], model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
        return (
            (key, f.raw[key]) for f in fragments for key in f.raw if key in model.model_fields and key not in COMMON
        )

    def _validated(self, model: type[BaseModel], raw: dict[str, Any], fragments: tuple[Fragment, ...]) -> Any:
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            complaints = Complaints(self.file)
            for detail in error.errors(include_url=False):
                key = detail["loc"][0] if detail["loc"] else None
                setters = [f for f in fragments if key in f.raw] or [fragments[0]]
                complaints.details([detail], setters[-1].node, f"axes.{setters[-1].axis}.{setters[-1].name}", model)
            raise MatrixError(complaints.listed()) from None

    def disagreement(self, conflict: Conflict) -> MatrixError:
        """Describe a conflict: both lines and both values."""
        one, other, key, part = conflict
        name = f"{key}.{part}" if part else key
        first, second = (_written(f.raw[key][part] if part else f.raw[key]) for f in (one, other))
        complaints = Complaints(self.file)
        complaints.add(
            other.line(key, part),
            f"{other.axis} {other.name!r} sets {name} to {second}, but {one.axis} {one.name!r} "
            f"(line {one.line(key, part)}) sets it to {first}, and they meet in one cell",
        )
        return MatrixError(complaints.listed())


def _written(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else show(value)


def conflicts(fragments: Sequence[Fragment]) -> Iterator[Conflict]:
    """Yield the keys that two of these values, which are of different axes, set differently."""
    for index, other in enumerate(fragments):
        for one in fragments[:index]:
            for key in (key for key in one.raw if key in other.raw and key not in ADDED):
                mine, theirs = one.raw[key], other.raw[key]
                if key in MAPS:
                    parts = (part for part in mine if part in theirs and mine[part] != theirs[part])
                    yield from (Conflict(one, other, key, part) for part in parts)
                elif mine != theirs:
                    yield Conflict(one, other, key, None)
