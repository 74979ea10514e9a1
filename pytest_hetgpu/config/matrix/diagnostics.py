"""Errors of a matrix file as lines with advice: `aws.yaml:14: unknown transport 'ucx-tpc' (known: ...)`."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.config.matrix.source import Node
from pytest_hetgpu.errors import MatrixError
from pytest_hetgpu.model.messages import known, show

MOST = 20
# More names than the longest list of keys has, as a list that is cut could lack the right key.
ALL = 80


class Diagnostics:
    """The errors of one file; `file` is its name as the user gave it. It is False while there is none."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._texts: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._texts)

    def add(self, line: int | None, text: str) -> None:
        """Add one error; an equal one is added once."""
        position = self.file if line is None else f"{self.file}:{line}"
        self._texts.setdefault(f"{position}: {_clip(text)}", math.inf if line is None else line)

    def check(self, rule: Callable[[str], object], text: str, line: int, place: str) -> bool:
        """Return whether a rule accepts a text. If not, add the message of its ValueError."""
        try:
            rule(text)
        except ValueError as error:
            self.add(line, f"{place}: {error}")
            return False
        return True

    def take(self, error: MatrixError) -> None:
        """Add the errors of another check of the same file."""
        self._texts.update({text: self._texts.get(text, math.inf) for text in error.errors})

    def listed(self) -> tuple[str, ...]:
        """Return the first errors in the order of lines, and the number of further ones."""
        texts = sorted(self._texts, key=self._texts.__getitem__)
        extra = len(texts) - MOST
        return (*texts[:MOST], *((f"{self.file}: ... and {extra} more",) if extra > 0 else ()))

    def invalid(self, error: ValidationError, node: Node, place: str, model: type[BaseModel]) -> None:
        """Add every pydantic error about `node`; `place` is its key in the file (`hardware.g4ad`)."""
        self.details(error.errors(include_url=False), node, place, model)

    def details(self, details: Sequence[ErrorDetails], node: Node, place: str, model: type[BaseModel]) -> None:
        """Add some pydantic errors about `node`."""
        misspelt = [str(detail["loc"][-1]) for detail in details if detail["type"] == "extra_forbidden"]
        for detail in details:
            if _follows(detail, misspelt):
                continue
            unknown = detail["type"] == "extra_forbidden"
            line, keys = locate(node, detail["loc"], key=unknown or "[key]" in detail["loc"])
            inner = keys[:-1] if unknown or "[key]" in detail["loc"] else keys
            self.add(line, _message(detail, ".".join(filter(None, (place, *inner))), model))


def locate(node: Node, path: Sequence[Any], *, key: bool = False) -> tuple[int, list[str]]:
    """Return the line of the value (or key) at a pydantic error path, and the path in the file."""
    line, seen = node.line, []
    for part in path:
        if isinstance(node, source.Mapping) and part in node.entries:
            line, node = node.lines[part], node.entries[part]
            if not key and isinstance(node, source.Scalar):
                line = node.line
            seen.append(str(part))
        elif isinstance(node, source.Sequence) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            line = node.line
    return line, seen


def _follows(detail: ErrorDetails, misspelt: Sequence[str]) -> bool:
    """Return whether an error only follows from another one.

    A misspelt key causes a missing key, and wrong items cause an empty list.
    """
    if detail["type"] == "missing":
        return bool(difflib.get_close_matches(str(detail["loc"][-1]), misspelt, 1))
    return detail["type"] == "too_short" and bool(detail["input"])


_MUST = {
    "int_parsing": "be a whole number",
    "int_from_float": "be a whole number",
    "int_parsing_size": "be a smaller number",
    "int_type": "be a whole number",
    "bool_parsing": "be true or false",
    "bool_type": "be true or false",
    "float_parsing": "be a number",
    "float_type": "be a number",
    "finite_number": "be a finite number",
    "greater_than": "be above {gt:g}",
    "greater_than_equal": "be at least {ge:g}",
    "less_than_equal": "be at most {le:g}",
    "string_type": "be a single value",
    "dict_type": "be a map",
    "model_type": "be a map",
    "model_attributes_type": "be a map",
    "list_type": "be a list",
    "tuple_type": "be a list",
    "path_type": "be a path",
    "too_short": "not be empty",
    "string_too_short": "not be empty",
}


def _message(detail: ErrorDetails, place: str, model: type[BaseModel]) -> str:
    kind, found, context = detail["type"], detail.get("input"), detail.get("ctx", {})
    subject = place or "the file"
    if kind == "extra_forbidden":
        last = str(detail["loc"][-1])
        return f"unknown key {last!r}{f' in {place}' if place else ''} {known(last, _keys(model, detail['loc']), ALL)}"
    if kind == "missing":
        return f"{subject} lacks the key {detail['loc'][-1]!r}"
    if kind == "value_error":
        return f"{subject}: {context.get('error')}"
    if kind == "literal_error":
        # An empty text is a possible value, but no name to propose.
        choices = filter(None, str(context.get("expected")).replace(" or ", ", ").replace("'", "").split(", "))
        return f"{place}: unknown value {show(found)} {known(str(found), choices)}"
    if kind in _MUST:
        needed = _MUST[kind].format(**context)
        return f"{subject} must {needed}" + ("" if needed == "not be empty" else f", not {show(found)}")
    return f"{subject}: {show(found)}: {detail['msg']}"


def _keys(model: type[BaseModel], path: Sequence[Any]) -> tuple[str, ...]:
    """Return the keys of the (possibly nested) model in which an unknown key was found."""
    for part in path[:-1]:
        # Parts that name no field are keys of a plain map or indices of a list, so the model stays.
        field = _by_alias(model).get(str(part))
        model = next(_models(field.annotation), model) if field else model
    return tuple(_by_alias(model))


def _by_alias(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields by their keys in a file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    inner = get_args(annotation)
    if not inner and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in inner:
        yield from _models(part)


def _clip(text: str, most: int = 600) -> str:
    """Return a text in one line, cut if it is long; advice on imports keeps its lines."""
    advice = ""
    if "  ->  " in text:
        from pytest_hetgpu.extensions.moved_imports import LINE

        advice = "".join(f"\n  {line}" for line in LINE.findall(text))
        text = LINE.sub("", text)
    flat = " ".join(text.split())
    return (flat if len(flat) <= most else flat[:most] + " ...") + advice
