"""Reader of the rules of a matrix: `include`, `exclude` and `expect`."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from pytest_hetgpu.config.known_failures.entries import KnownFailures
from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.config.matrix.diagnostics import Diagnostics
from pytest_hetgpu.config.matrix.matrix import Axis, AxisValue, ReferenceRule, Rule
from pytest_hetgpu.config.matrix.models import ExcludeShape, ExpectShape, ReferenceRuleShape
from pytest_hetgpu.config.matrix.source import Node, Scalar, plain
from pytest_hetgpu.config.matrix.values import AxisReader
from pytest_hetgpu.model.conditions import check_condition
from pytest_hetgpu.model.failure import KnownFailure
from pytest_hetgpu.model.messages import known, show


class RuleReader:
    """Reader of the rules of one file; errors are collected, never raised.

    `includes` fills `extra` with the values that includes define themselves. `knowledge` is called only if an
    expectation names a known failure.
    """

    def __init__(
        self, diagnostics: Diagnostics, axes: Iterable[Axis], reader: AxisReader, knowledge: Callable[[], KnownFailures]
    ) -> None:
        self.knowledge = knowledge
        self.diagnostics = diagnostics
        self.axes = {axis.name: axis for axis in axes}
        self.reader = reader
        self.extra: dict[tuple[str, str], AxisValue] = {}

    def values(self, axis: str) -> tuple[AxisValue, ...]:
        """Return every value that a rule may name: those on the axis, and those beside it."""
        beside = self.reader.known_transports.values() if axis == "transport" else ()
        extra = (value for (name, _), value in self.extra.items() if name == axis)
        return (*self.axes[axis].values, *beside, *extra)

    def includes(self, tree: source.Mapping) -> Iterator[Rule]:
        """Yield the rules of cells to add. An include names a value of every axis."""
        for node, _ in self.entries(tree, "include"):
            missing = [axis for axis in self.axes if axis not in node.entries]
            if missing:
                text = f"this include names no {', '.join(missing)}; it must name a value of every axis"
                self.diagnostics.add(node.line, text)
            for key in node.entries:
                if key not in self.axes:
                    self.diagnostics.add(node.lines[key], f"unknown axis {key!r} in include {known(key, self.axes)}")
            named = (axis for axis in self.axes if axis in node.entries)
            where = {axis: tuple(dict.fromkeys(self.included(axis, node.entries[axis], "include"))) for axis in named}
            yield Rule("include", where, self.reader.origin(node.line))

    def included(self, axis: str, node: Node, key: str) -> Iterator[str]:
        """Yield the names on one axis of `key`, an include or a series: from names, globs, or definitions."""
        items = node.items if isinstance(node, source.Sequence) else [node]
        if not items:
            self.diagnostics.add(node.line, f"{key}.{axis} must not be empty")
        for item in items:
            if isinstance(item, source.Mapping):
                yield from self.defined(axis, item, key)
            elif isinstance(item, Scalar) and item.text is not None:
                yield from self.matching(axis, item.text, item.line)
            else:
                self.diagnostics.add(
                    item.line, f"{key}.{axis} must be a name, a list of names or a value, not {show(plain(item))}"
                )

    def defined(self, axis: str, node: source.Mapping, key: str) -> Iterator[str]:
        """Store a value that `key` defines, and yield its name."""
        axis_value = self.reader.inline(axis, node, key)
        if axis_value is None:
            return
        first = next((value for value in self.values(axis) if value.name == axis_value.name), None)
        if first:
            text = f"{axis} {axis_value.name!r} is defined twice (first in line {first.origin.line})"
            self.diagnostics.add(node.line, f"{text}; name it, or choose another name")
            return
        self.extra[axis, axis_value.name] = axis_value
        yield axis_value.name

    def rules(self, tree: source.Mapping, key: str) -> Iterator[Rule]:
        """Yield the rules of `exclude` or `expect`."""
        for node, value in self.entries(tree, key):
            if "where" not in value and not self.flat(key, node, value):
                continue
            model: Any = ExcludeShape if key == "exclude" else ExpectShape
            try:
                shape = model.model_validate(value)
            except ValidationError as error:
                self.diagnostics.invalid(error, node, key, model)
                continue
            where = self.where(shape.where, node)
            origin = self.reader.origin(node.line)
            if isinstance(shape, ExcludeShape):
                yield Rule(key, where, origin, exclusion=shape.exclusion(origin))
            else:
                self.conditions(shape, node)
                yield Rule(key, where, origin, expectation=shape.expectation(origin, self.known(shape, node)))

    def references(self, tree: source.Mapping) -> Iterator[ReferenceRule]:
        """Yield the references of the key `reference`."""
        for node, value in self.entries(tree, "reference"):
            try:
                shape = ReferenceRuleShape.model_validate(value)
            except ValidationError as error:
                self.diagnostics.invalid(error, node, "reference", ReferenceRuleShape)
                continue
            yield ReferenceRule(shape, self.where(shape.where, node), node, self.reader.origin(node.line))

    def known(self, shape: ExpectShape, node: source.Mapping) -> KnownFailure | None:
        """Return the known failure that an expectation names. Add an error if there is none of that id."""
        if shape.known is None:
            if shape.outcome is None:
                self.diagnostics.add(node.line, "expect lacks the key 'outcome' (or 'known', a known failure's id)")
            return None
        entries = self.knowledge().by_id
        if shape.known not in entries:
            line = node.lines.get("known", node.line)
            near = difflib.get_close_matches(shape.known, entries, 1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            text = f"expect.known: unknown failure {show(shape.known)}"
            self.diagnostics.add(line, f"{text} ({meant}your own come with --hetgpu-knowledge FILE)")
            return None
        return entries[shape.known].known

    def flat(self, key: str, node: source.Mapping, value: dict[str, Any]) -> bool:
        """Set the key `where` of a rule that lacks it. Return False after an error.

        An exclude may name its axes beside its other keys. An expect may not.
        """
        fields = (ExcludeShape if key == "exclude" else ExpectShape).model_fields
        if key == "expect":
            axes = [name for name in value if name in self.axes and name not in fields]
            for name in axes:
                self.diagnostics.add(node.lines[name], f"expect names its axes below the key where: {{{name}: ...}}")
            return not axes
        value["where"] = {name: value.pop(name) for name in list(value) if name not in fields}
        unknown = [name for name in value["where"] if name not in self.axes]
        for name in unknown:
            hint = known(name, (*self.axes, "reason", "issue"))
            self.diagnostics.add(node.lines[name], f"unknown axis or key {show(name)} in exclude {hint}")
        if not value["where"]:
            self.diagnostics.add(node.line, f"exclude names no cells; give values of an axis {known('', self.axes)}")
        return bool(value["where"]) and not unknown

    def where(self, where: Mapping[str, tuple[str, ...]], node: source.Mapping) -> dict[str, tuple[str, ...]]:
        """Return the values that the patterns of each axis match."""
        inner = node.entries.get("where", node)
        lines = inner.lines if isinstance(inner, source.Mapping) else node.lines
        found: dict[str, tuple[str, ...]] = {}
        for axis, patterns in where.items():
            line = lines.get(axis, node.line)
            if axis not in self.axes:
                self.diagnostics.add(line, f"unknown axis {axis!r} {known(axis, self.axes)}")
                continue
            hits = (hit for pattern in patterns for hit in self.matching(axis, pattern, line))
            found[axis] = tuple(dict.fromkeys(hits))
        return found

    def matching(self, axis: str, pattern: str, line: int) -> Iterator[str]:
        """Yield the names of the values that a name or glob matches. Add an error if there are none."""
        hits = [value.name for value in self.values(axis) if _fits(value, pattern)]
        if not hits:
            choices = known(pattern, (value.name for value in self.values(axis)))
            self.diagnostics.add(line, f"{axis} {show(pattern)} matches no value {choices}")
        yield from hits

    def conditions(self, shape: ExpectShape, node: source.Mapping) -> None:
        """Add an error for each invalid version range."""
        when = node.entries.get("when", node)
        for fact, wanted in shape.when.items():
            problem = check_condition(wanted)
            if problem:
                line = when.lines.get(fact, when.line) if isinstance(when, source.Mapping) else when.line
                self.diagnostics.add(line, f"expect.when.{fact}: {problem}")

    def entries(self, tree: source.Mapping, key: str) -> Iterator[tuple[source.Mapping, dict[str, Any]]]:
        """Yield the maps of a list, each with its plain form."""
        node = tree.entries.get(key)
        items = node.items if isinstance(node, source.Sequence) else []
        if node is not None and not isinstance(node, source.Sequence) and plain(node) is not None:
            self.diagnostics.add(node.line, f"{key} must be a list, not {show(plain(node))}")
        for item in items:
            if isinstance(item, source.Mapping):
                yield item, dict(plain(item))
            else:
                self.diagnostics.add(item.line, f"each entry of {key} must be a map, not {show(plain(item))}")


def _fits(value: AxisValue, pattern: str) -> bool:
    return fnmatch.fnmatchcase(value.name, pattern) or (bool(value.text) and fnmatch.fnmatchcase(value.text, pattern))
