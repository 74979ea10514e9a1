"""YAML text as a tree with the line of every value.

No types are read: a scalar is its source text. So `on` is a string, and the version 6.10 keeps its zero. The models
define the type of each value. The tree is built from parser events with an explicit stack. So depth,
aliases and tags are bounded before anything is constructed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pytest_hetgpu.model.messages import known, show
from pytest_hetgpu.store.files import open_input

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
MAX_VALUES = 200_000

_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STANDARD = "tag:yaml.org,2002:"
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))


class SourceError(Exception):
    """Text that cannot become a tree; `line` counts from 1, None means the whole file."""

    def __init__(self, line: int | None, text: str) -> None:
        self.line = line
        super().__init__(text)


@dataclass(slots=True)
class Scalar:
    """One value; `text` is None for null."""

    text: str | None
    line: int
    plain: bool = True
    size: int = 1
    depth: int = 0


@dataclass(slots=True)
class Sequence:
    """A list; `size` counts the values in it, `depth` the levels, both with every alias written out."""

    line: int
    items: list[Node] = field(default_factory=list)
    size: int = 1
    depth: int = 1


@dataclass(slots=True)
class Mapping:
    """A map; `lines` has the line of each key."""

    line: int
    entries: dict[str, Node] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    size: int = 1
    depth: int = 1


Node = Scalar | Sequence | Mapping


def load(path: Path) -> Node:
    """Read the tree of a file. Raises SourceError: unreadable, too large, not text, not YAML, or beyond the limits."""
    return tree(fetch(path))


def fetch(path: Path, most: int = MAX_BYTES) -> bytes:
    """Read a file, or a pipe of the shell; at most `most` bytes. Raises SourceError."""
    try:
        with open_input(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise SourceError(None, f"is {size / 1e6:.1f} MB; at most {most / 1e6:.0f} MB can be read")
            data = file.read(most + 1)
    except IsADirectoryError:
        raise SourceError(None, "is a directory, not a file") from None
    except (OSError, ValueError) as error:
        raise SourceError(None, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > most:
        raise SourceError(None, f"holds more than the {most / 1e6:.0f} MB that can be read")
    return data


def tree(data: bytes) -> Node:
    """Parse the bytes of a file. Raises SourceError."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SourceError(line, f"not a text file: byte 0x{data[error.start]:02x} is not UTF-8") from None
    return parse(text)


def parse(text: str) -> Node:
    """Parse a text with one YAML document. Raises SourceError."""
    try:
        return _Builder().build(yaml.parse(text, Loader=_Loader))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SourceError(line, f"not a text file: character {error.character!r} is not allowed in YAML") from None
    except yaml.MarkedYAMLError as error:
        raise _malformed(error, text) from None
    except yaml.YAMLError as error:
        raise SourceError(None, f"not YAML: {error}") from None


def _malformed(error: yaml.MarkedYAMLError, text: str) -> SourceError:
    """Convert a parser error, with the place that opened the broken value and the character that broke it."""
    start, mark = error.context_mark, error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    if "nesting depth" in str(error.problem):  # the limit of libyaml since PyYAML 6.0.4
        return SourceError(line, _TOO_DEEP)
    began = start.line + 1 if start else line
    context = f"{error.context}{f' that begins in line {began}' if began != line else ''}: " if error.context else ""
    rows = text.splitlines()
    row = rows[mark.line] if mark and mark.line < len(rows) else ""
    found = row[mark.column : mark.column + 1] if mark else ""
    hint = ""
    if "flow" in context and "${" in row:
        hint = "; inside brackets ${...} needs quotes"
    elif found and "character" in str(error.problem):
        hint = " (a tab; indent with spaces)" if found == "\t" else f" ({found!r})"
    return SourceError(line, f"not YAML: {context}{error.problem}{hint}")


def plain(node: Node) -> Any:
    """Convert a node to dicts, lists and source texts."""
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {name: plain(child) for name, child in node.entries.items()}


class _Builder:
    """A consumer of parser events; `open` holds the unfinished containers, `keys` the current key of each open map.

    `merged` holds the keys that each open map has only from merges, as its own keys may replace them, and `<<` itself.
    """

    def __init__(self) -> None:
        self.root: Node | None = None
        self.open: list[Sequence | Mapping] = []
        self.keys: list[tuple[str, int, bool] | None] = []
        self.merged: list[dict[str, int]] = []
        self.names: list[str | None] = []
        self.anchors: dict[str, Node | None] = {}

    def build(self, events: Iterator[yaml.Event]) -> Node:
        for event in events:
            self.take(event)
        if self.root is None:
            raise SourceError(None, "is empty")
        return self.root

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.ScalarEvent):
            self.untagged(event, line)
            plain = bool(event.implicit[0])
            text = None if plain and event.value in _NULLS else event.value
            self.add(Scalar(text, line, plain), event.anchor, line)
        elif isinstance(event, yaml.AliasEvent):
            self.alias(str(event.anchor), line)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self.untagged(event, line)
            self.start(Mapping(line) if isinstance(event, yaml.MappingStartEvent) else Sequence(line), event.anchor)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self.end()
        elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise SourceError(line, "a second document starts here; a file holds one")

    def untagged(self, event: Any, line: int) -> None:
        if event.tag is not None:
            raise SourceError(
                line, f"explicit tag {event.tag.replace(_STANDARD, '!!')!r}: types are not written here, leave it out"
            )

    def start(self, node: Sequence | Mapping, anchor: str | None) -> None:
        if len(self.open) >= MAX_DEPTH:
            raise SourceError(node.line, _TOO_DEEP)
        if self.open and isinstance(self.open[-1], Mapping) and self.keys[-1] is None:
            raise SourceError(node.line, "a list or map cannot be a key")
        if anchor:
            self.anchors[anchor] = None
        self.open.append(node)
        self.keys.append(None)
        self.merged.append({})
        self.names.append(anchor)

    def end(self) -> None:
        node, anchor = self.open.pop(), self.names.pop()
        self.keys.pop()
        self.merged.pop()
        inside = node.entries.values() if isinstance(node, Mapping) else node.items
        node.size = 1 + sum(child.size for child in inside)
        node.depth = 1 + max((child.depth for child in inside), default=0)
        if node.size > MAX_VALUES:
            raise SourceError(node.line, f"aliases write this out to more than {MAX_VALUES:,} values")
        self.add(node, anchor, node.line)

    def alias(self, anchor: str, line: int) -> None:
        if anchor not in self.anchors:
            raise SourceError(line, f"alias *{anchor} has no anchor before it {known(anchor, self.anchors)}")
        node = self.anchors[anchor]
        if node is None:
            raise SourceError(line, f"alias *{anchor} contains itself")
        if len(self.open) + node.depth > MAX_DEPTH:
            raise SourceError(line, f"alias *{anchor} nests this more than {MAX_DEPTH} levels deep")
        self.add(node, None, line)

    def add(self, node: Node, anchor: str | None, line: int) -> None:
        if anchor:
            self.anchors[anchor] = node
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        if isinstance(parent, Sequence):
            parent.items.append(node)
        elif self.keys[-1] is None:
            self.keys[-1] = self.key(parent, node, line)
        else:
            name, key_line, merge = self.keys[-1]
            self.keys[-1] = None
            if merge:
                self.merge(parent, node, key_line)
            else:
                self.merged[-1].pop(name, None)
                parent.entries[name], parent.lines[name] = node, key_line

    def key(self, parent: Mapping, node: Node, line: int) -> tuple[str, int, bool]:
        if not isinstance(node, Scalar) or node.text is None:
            raise SourceError(line, "a key must be a word")
        merge = node.plain and node.text == "<<"
        first = self.merged[-1].get("<<") if merge else None
        if first is not None:
            raise SourceError(line, f"key '<<' is there twice (first in line {first}); merge a list: <<: [*a, *b]")
        if node.text in parent.entries and node.text not in self.merged[-1]:
            raise SourceError(line, f"key {show(node.text)} is there twice (first in line {parent.lines[node.text]})")
        return node.text, line, merge

    def merge(self, parent: Mapping, merged: Node, line: int) -> None:
        """Merge maps into a map. Own keys win over merged ones, and an earlier source over a later one."""
        self.merged[-1]["<<"] = line
        for source in merged.items if isinstance(merged, Sequence) else [merged]:
            if not isinstance(source, Mapping):
                raise SourceError(line, "<< merges a map or a list of maps")
            for name, value in source.entries.items():
                if name not in parent.entries:
                    parent.entries[name], parent.lines[name] = value, source.lines[name]
                    self.merged[-1][name] = line
