"""Reader of the values of axes: placements, transports, workloads, and further axes of settings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError, create_model

from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.config.matrix.diagnostics import ALL, Diagnostics
from pytest_hetgpu.config.matrix.matrix import COMMON, MAIN_AXES, Axis, AxisValue
from pytest_hetgpu.config.matrix.models import Options, PlacementShape
from pytest_hetgpu.config.matrix.source import Node, Scalar, plain
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.extensions.shapes import NAME
from pytest_hetgpu.extensions.transports.base import Transport
from pytest_hetgpu.extensions.workloads.base import Workload
from pytest_hetgpu.model.job import Origin
from pytest_hetgpu.model.messages import known, show

_STRUCTURE = frozenset(("family", "kind", "nodes", "launch_from", "master"))
# An exclude may name its axes beside these keys.
_RESERVED = ("where", "reason", "issue")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")


@cache
def entry_model(family: str, kind: str) -> type[BaseModel]:
    """Return the shape of a transport or workload: its own settings and the options of any value."""
    base: Any = Transport if family == "transports" else Workload
    settings = find(family, kind, base).Settings
    return create_model(f"{kind}-entry", __base__=(Options, settings), __doc__=settings.__doc__)


class AxisReader:
    """Reader of the axes of one file; errors are collected, never raised."""

    def __init__(self, diagnostics: Diagnostics, hardware: frozenset[str]) -> None:
        self.diagnostics = diagnostics
        self.hardware = hardware
        self.known_transports: dict[str, AxisValue] = {}

    def transports(self, node: source.Mapping) -> dict[str, AxisValue]:
        """Read the transports beside the axis, for `over` and for includes."""
        entries = ((name, entry, node.lines[name]) for name, entry in node.entries.items())
        found = [self.value("transport", name, entry, line, "transports") for name, entry, line in entries]
        self.known_transports = {axis_value.name: axis_value for axis_value in found if axis_value}
        return self.known_transports

    def axes(self, node: source.Mapping, line: int, transports: Mapping[str, AxisValue]) -> tuple[Axis, ...] | None:
        """Read the three main axes, then the further ones in file order. Return None after an error in their names."""
        missing = [name for name in MAIN_AXES if name not in node.entries]
        if missing:
            near = {name: found for name in missing for found in difflib.get_close_matches(name, node.entries, 1)}
            hint = "".join(f"; is {found!r} meant to be {name!r}?" for name, found in near.items())
            self.diagnostics.add(line, f"axes lacks {', '.join(missing)}: a matrix needs {', '.join(MAIN_AXES)}{hint}")
            return None
        order = (*MAIN_AXES, *(name for name in node.entries if name not in MAIN_AXES))
        axes = tuple(Axis(name, tuple(self.values(name, node.entries[name], node.lines[name]))) for name in order)
        for value in axes[1].values:
            if value.name in transports:
                first = transports[value.name].origin.line
                self.diagnostics.add(value.origin.line, f"transport {value.name!r} is defined in line {first} too")
        self.layers({**transports, **{value.name: value for value in axes[1].values}})
        return axes

    def values(self, axis: str, node: Node, line: int) -> Iterator[AxisValue]:
        """Yield the values of one axis; `line` is that of its key."""
        self.named(axis, line, "axes")
        if axis in _RESERVED:
            self.diagnostics.add(line, f"axes: no axis can be named {axis!r}, as rules have a key of that name")
        elif isinstance(node, source.Mapping) and node.entries:
            for name, child in node.entries.items():
                axis_value = self.value(axis, name, child, node.lines[name], f"axes.{axis}")
                if axis_value:
                    yield axis_value
        elif isinstance(node, source.Sequence) and node.items and axis not in MAIN_AXES:
            yield from self.listed(axis, node)
        else:
            shape = "a map from names to values" + ("" if axis in MAIN_AXES else ", or a list for a single setting")
            self.diagnostics.add(line, f"axes.{axis} must be {shape}, not {show(plain(node))}")

    def listed(self, axis: str, node: source.Sequence) -> Iterator[AxisValue]:
        """Yield one value per item of a list like `ranks_per_node: [1, 2]`, which sets a single key."""
        settings = COMMON.union(*(m.model_fields for m in _all_settings()))
        if axis not in settings:
            hint = f"{known(axis, settings, ALL)}; use a map from names to settings"
            self.diagnostics.add(node.line, f"axis {axis!r} is a list, but no setting has that name {hint}")
            return
        seen: set[str] = set()
        for item in node.items:
            if not isinstance(item, Scalar) or item.text is None:
                self.diagnostics.add(
                    item.line, f"axis {axis!r}: a list holds single values; use a map from names to settings"
                )
                continue
            name = f"{axis}{item.text}" if _NUMBER.fullmatch(item.text) else item.text
            if name in seen:
                self.diagnostics.add(item.line, f"axis {axis!r} lists {item.text!r} twice")
            seen.add(name)
            wrapped = source.Mapping(item.line, {axis: item}, {axis: item.line})
            if self.named(name, item.line, f"axes.{axis}"):
                axis_value = AxisValue(axis, name, {axis: item.text}, wrapped, self.origin(item.line), text=item.text)
                self.setting(axis_value, "axes")
                yield axis_value

    def value(self, axis: str, name: str, node: Node, line: int, place: str) -> AxisValue | None:
        """Read one named value of an axis; `place` is its path in the file."""
        if not self.named(name, line, place):
            return None
        place = f"{place}.{name}"
        if isinstance(node, Scalar) and node.text is None:
            node = source.Mapping(line)
        if axis == "placement":
            return self.placement(name, node, line, place)
        if not isinstance(node, source.Mapping):
            self.diagnostics.add(node.line, f"{place} must be a map of settings, not {show(plain(node))}")
            return None
        if axis in ("transport", "workload"):
            return self.described(axis, name, node, line, place)
        axis_value = AxisValue(axis, name, plain(node), node, self.origin(line))
        self.setting(axis_value, place)
        return axis_value

    def setting(self, axis_value: AxisValue, place: str) -> None:
        """Check a value of a further axis.

        Options are checked here. Settings of extensions are checked in the cells that accept them.
        """
        special = axis_value.raw.keys() - COMMON  # otherwise no extension has to be imported for its settings
        settings = COMMON.union(*(model.model_fields for model in _all_settings())) - {"over"} if special else COMMON
        for key in (key for key in axis_value.raw if key not in settings):
            self.diagnostics.add(axis_value.line(key), f"unknown key {key!r} in {place} {known(key, settings, ALL)}")
        try:
            Options.model_validate({key: value for key, value in axis_value.raw.items() if key in COMMON})
        except ValidationError as error:
            self.diagnostics.invalid(error, axis_value.node, place, Options)

    def described(self, axis: str, name: str, node: source.Mapping, line: int, place: str) -> AxisValue | None:
        """Read a transport or workload. Its family or kind is its own key, or else its name."""
        raw = {key: value for key, value in plain(node).items() if key not in _STRUCTURE}
        family, key = ("transports", "family") if axis == "transport" else ("workloads", "kind")
        stated = node.entries.get(key)
        kind = name if stated is None else stated.text if isinstance(stated, Scalar) else None
        if kind is None:
            self.diagnostics.add(
                node.lines[key], f"{place}.{key} must be a single value, not {show(plain(stated or node))}"
            )
            return None
        misspelt = difflib.get_close_matches(key, raw, n=1) if stated is None and kind not in names(family) else []
        if misspelt:
            self.diagnostics.add(
                node.lines[misspelt[0]], f"unknown key {misspelt[0]!r} in {place}; did you mean {key!r}?"
            )
            return None
        if kind not in names(family):
            hint = f"; give its {key} if {name!r} is a name of your own" if stated is None else ""
            where = node.lines.get(key, line)
            self.diagnostics.add(where, f"unknown {axis} {key} {show(kind)} {known(kind, names(family), ALL)}{hint}")
            return None
        model = entry_model(family, kind)
        try:
            model.model_validate(raw)
        except ValidationError as error:
            self.diagnostics.invalid(error, node, place, model)
        return AxisValue(axis, name, raw, node, self.origin(line), kind=kind)

    def placement(self, name: str, node: Node, line: int, place: str) -> AxisValue | None:
        """Read a placement: a list of hardware names, or a map with such a list and settings."""
        if isinstance(node, source.Sequence):
            node = source.Mapping(node.line, {"nodes": node}, {"nodes": node.line})
        if not isinstance(node, source.Mapping):
            self.diagnostics.add(
                line, f"{place} must be a list of hardware names, or a map with nodes, not {show(plain(node))}"
            )
            return None
        try:
            shape = PlacementShape.model_validate(plain(node))
        except ValidationError as error:
            self.diagnostics.invalid(error, node, place, PlacementShape)
            return None
        listed = node.entries["nodes"]
        for index, hardware in enumerate(shape.nodes):
            if self.hardware and hardware not in self.hardware:
                where = listed.items[index].line if isinstance(listed, source.Sequence) else line
                self.diagnostics.add(where, f"{place}: unknown hardware {hardware!r} {known(hardware, self.hardware)}")
        if self.hardware and shape.launch_from and shape.launch_from not in self.hardware:
            hint = known(shape.launch_from, self.hardware)
            self.diagnostics.add(
                node.lines["launch_from"], f"{place}.launch_from: unknown hardware {shape.launch_from!r} {hint}"
            )
        if shape.master and shape.master not in shape.nodes:
            hint = known(shape.master, shape.nodes)
            self.diagnostics.add(node.lines["master"], f"{place}.master: no node is {shape.master!r} {hint}")
        raw = {key: value for key, value in plain(node).items() if key not in _STRUCTURE}
        made = AxisValue("placement", name, raw, node, self.origin(line), nodes=shape.nodes)
        return replace(made, launch_from=shape.launch_from or "", master=shape.master or "")

    def inline(self, axis: str, node: source.Mapping, key: str) -> AxisValue | None:
        """Read a value that `key` defines, an include or a series; it needs a `name`."""
        name = node.entries.get("name")
        if not isinstance(name, Scalar) or not name.text:
            text = f"{key}.{axis}: a {axis} that is defined here needs a name of its own: {{name: ..., ...}}"
            self.diagnostics.add(node.line, text)
            return None
        rest = source.Mapping(
            node.line,
            {key: child for key, child in node.entries.items() if key != "name"},
            {key: line for key, line in node.lines.items() if key != "name"},
        )
        return self.value(axis, name.text, rest, node.line, f"{key}.{axis}")

    def layers(self, transports: Mapping[str, AxisValue]) -> None:
        """Check that every `over` names a transport of the file, and that there is no cycle."""
        circles: set[frozenset[str]] = set()
        for axis_value in transports.values():
            if "over" not in find("transports", axis_value.kind, Transport).Settings.model_fields:  # type: ignore[type-abstract]
                continue
            seen, current = [axis_value.name], axis_value
            while isinstance(over := current.raw.get("over"), str):
                if over not in transports:
                    self.diagnostics.add(current.line("over"), f"unknown transport {over!r} {known(over, transports)}")
                    break
                if over in seen:
                    circle = seen[seen.index(over) :]
                    if frozenset(circle) not in circles:
                        text = f"transports run over each other in a circle: {' -> '.join([*circle, over])}"
                        self.diagnostics.add(transports[over].line("over"), text)
                    circles.add(frozenset(circle))
                    break
                seen.append(over)
                current = transports[over]

    def named(self, name: str, line: int, place: str) -> bool:
        """Return whether a name is valid. Add an error if not."""
        return self.diagnostics.check(NAME.check, name, line, place)

    def origin(self, line: int) -> Origin:
        """Return the origin of a line of this file."""
        return Origin(self.diagnostics.file, line)


def _all_settings() -> Iterator[type[BaseModel]]:
    for name in names("transports"):
        yield find("transports", name, Transport).Settings  # type: ignore[type-abstract]
    for name in names("workloads"):
        yield find("workloads", name, Workload).Settings  # type: ignore[type-abstract]
