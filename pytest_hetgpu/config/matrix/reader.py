"""Reader of a matrix file: it returns a Matrix, or raises every error of the file."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from pytest_hetgpu.config.known_failures.entries import KnownFailures
from pytest_hetgpu.config.known_failures.load import known_failures as shipped
from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.config.matrix.diagnostics import Diagnostics
from pytest_hetgpu.config.matrix.hardware import shape_of, whole_shape
from pytest_hetgpu.config.matrix.matrix import MAIN_AXES, AxisValue, EfficiencyRule, Matrix, Rule
from pytest_hetgpu.config.matrix.rules import RuleReader
from pytest_hetgpu.config.matrix.source import Node, Scalar, SourceError, plain
from pytest_hetgpu.config.matrix.values import AxisReader
from pytest_hetgpu.errors import MatrixError
from pytest_hetgpu.extensions.runtimes.lookup import conflict
from pytest_hetgpu.extensions.shapes import NAME
from pytest_hetgpu.model.job import Hardware
from pytest_hetgpu.model.messages import known, show

TOP = ("name", "hardware", "transports", "axes", "include", "exclude", "expect", "reference", "scaling")

_VARIABLE = re.compile(r"\$(\$)?\{([^}]*)\}")


def read(path: Path, environ: Mapping[str, str], knowledge: Callable[[], KnownFailures] = shipped) -> Matrix:
    """Read a file; `${VAR}` comes from `environ`. Raises MatrixError with every error found.

    `knowledge` returns the known failures that expectations may name.
    """
    diagnostics = Diagnostics(str(path))
    try:
        data = source.fetch(path)
        tree = source.tree(data)
    except SourceError as error:
        diagnostics.add(error.line, str(error))
        raise MatrixError(diagnostics.listed()) from None
    matrix = _MatrixReader(path, diagnostics, environ, knowledge).matrix(tree, hashlib.sha256(data).hexdigest())
    if diagnostics or matrix is None:
        raise MatrixError(diagnostics.listed())
    return matrix


class _MatrixReader:
    def __init__(
        self, path: Path, diagnostics: Diagnostics, environ: Mapping[str, str], knowledge: Callable[[], KnownFailures]
    ) -> None:
        self.knowledge = knowledge
        self.path = path
        self.diagnostics = diagnostics
        self.environ = environ

    def matrix(self, tree: Node, sha256: str) -> Matrix | None:
        if not isinstance(tree, source.Mapping) or not tree.entries:
            self.diagnostics.add(tree.line, f"a matrix is a map of {', '.join(TOP)}; this is {show(plain(tree))}")
            return None
        self.substitute(tree)
        if self.diagnostics:
            # The empty text of a missing variable would only cause further errors.
            return None
        for key, line in tree.lines.items():
            if key not in TOP and not key.startswith("x-"):
                self.diagnostics.add(line, f"unknown key {key!r} {known(key, (*TOP, 'x-...'))}")
        name = self.name(tree)
        hardware = self.hardware(tree)
        reader = AxisReader(self.diagnostics, frozenset(hardware))
        transports = reader.transports(self.optional(tree, "transports"))
        node = self.needed(tree, "axes", f"a map with {', '.join(MAIN_AXES)}")
        axes = reader.axes(node, tree.lines["axes"], transports) if node else None
        if axes is None or self.diagnostics:
            return None
        rules = RuleReader(self.diagnostics, axes, reader, self.knowledge)
        include = tuple(rules.includes(tree))
        series, efficiencies = self.series(rules, tree, hardware) if "scaling" in tree.entries else ((), ())
        reader.layers({value.name: value for value in rules.values("transport")})
        self.together(rules.values("placement"), hardware)
        return Matrix(
            name=name,
            file=str(self.path),
            sha256=sha256,
            hardware=hardware,
            axes=axes,
            transports=transports,
            include=(*include, *series),
            exclude=tuple(rules.rules(tree, "exclude")),
            expect=tuple(rules.rules(tree, "expect")),
            extra=rules.extra,
            references=tuple(rules.references(tree)),
            efficiencies=efficiencies,
        )

    def series(
        self, rules: RuleReader, tree: source.Mapping, hardware: Mapping[str, Hardware]
    ) -> tuple[tuple[Rule, ...], tuple[EfficiencyRule, ...]]:
        from pytest_hetgpu.config.matrix.scaling import read_series

        return read_series(rules, tree, hardware)

    def together(self, placements: Iterable[AxisValue], hardware: Mapping[str, Hardware]) -> None:
        """Add an error for a placement whose nodes their runtime cannot start together."""
        for placement in placements:
            names = (*placement.nodes, *filter(None, [placement.launch_from]))
            kinds = [kind for name in names if (kind := hardware.get(name))]
            if why := conflict(kinds, launcher=bool(placement.launch_from)):
                self.diagnostics.add(placement.line("nodes"), f"placement {placement.name}: {why}")

    def needed(self, tree: source.Mapping, key: str, description: str) -> source.Mapping | None:
        """Return a required part of the matrix; add an error if it is missing."""
        node = tree.entries.get(key)
        if isinstance(node, source.Mapping) and node.entries:
            return node
        misspelt = difflib.get_close_matches(key, [name for name in tree.entries if name not in TOP], 1)
        if node is not None:
            self.diagnostics.add(node.line, f"{key} must be {description}, not {show(plain(node))}")
        elif not misspelt:
            self.diagnostics.add(tree.line, f"a matrix needs {key}: {description}")
        return None

    def optional(self, tree: source.Mapping, key: str) -> source.Mapping:
        """Return a part that may be left out."""
        node = tree.entries.get(key)
        if isinstance(node, source.Mapping):
            return node
        if node is not None and plain(node) is not None:
            self.diagnostics.add(node.line, f"{key} must be a map, not {show(plain(node))}")
        return source.Mapping(tree.line)

    def substitute(self, tree: source.Mapping) -> None:
        """Replace `${VAR}` in values; `$${VAR}` becomes `${VAR}`.

        Values below `x-` are replaced only if they are used elsewhere.
        """
        nodes: list[Node] = [node for key, node in tree.entries.items() if not key.startswith("x-")]
        seen = set[int]()
        while nodes:
            node = nodes.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, Scalar):
                node.text = node.text and _VARIABLE.sub(partial(self.variable, node.line), node.text)
            else:
                nodes += node.items if isinstance(node, source.Sequence) else node.entries.values()

    def variable(self, line: int, match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        name = match[2]
        value = self.environ.get(name)
        if value is None:
            near = difflib.get_close_matches(name, self.environ, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"set it, or write $${{{name}}} for the text itself"
            self.diagnostics.add(line, f"environment variable {name!r} is not set; {hint}")
            return ""
        # An environment may hold any bytes. Python decodes invalid ones as lone surrogates.
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            self.diagnostics.add(line, f"environment variable {name!r} is not UTF-8 text")
            return ""
        return value

    def name(self, tree: source.Mapping) -> str:
        """Return the name of the matrix: its own, or that of the file."""
        node = tree.entries.get("name")
        if node is None:
            return re.sub(r"[^A-Za-z0-9_.+-]+", "-", self.path.stem).lstrip("-.+")[:80] or "matrix"
        if not isinstance(node, Scalar) or node.text is None:
            self.diagnostics.add(node.line, f"name must be a single value, not {show(plain(node))}")
            return ""
        self.diagnostics.check(NAME.check, node.text, node.line, "name")
        return node.text

    def hardware(self, tree: source.Mapping) -> dict[str, Hardware]:
        """Return every kind of node by name, also an invalid one, as placements may name it."""
        found = {}
        node = self.needed(tree, "hardware", "a map from names to kinds of node") or source.Mapping(tree.line)
        for name, entry in node.entries.items():
            self.diagnostics.check(NAME.check, name, node.lines[name], "hardware")
            value = plain(entry)
            found[name] = Hardware(name)
            try:
                found[name] = shape_of(value).model_validate({} if value is None else value).hardware(name)
            except ValidationError as error:
                self.diagnostics.invalid(error, entry, f"hardware.{name}", whole_shape())
        return found
