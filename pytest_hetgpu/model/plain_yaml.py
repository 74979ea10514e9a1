"""Reader of the plain form of YAML that shipped files have, in a tenth of the time of importing PyYAML.

    - id: name              maps and lists by indentation, text in one line
      cause: >-             text in several lines, which become one
        ...
      match: {texts: [one, "two", 'three']}         maps, lists and quoted text within one line

PyYAML reads all other forms: anchors, tags, comments after a value, empty values, text that continues
in the next line. The result equals that of PyYAML, with all scalars as text.
"""

from __future__ import annotations

import json
from collections.abc import Sized
from typing import Any

from pytest_hetgpu.model.lazy_regex import lazy


class NotPlain(Exception):
    """A text that does not have the plain form."""


# Text without characters that have a meaning at its place: on a line of its own, or between brackets.
_KEY = lazy(r"([A-Za-z_][\w.-]*):(?: +|$)")
_TEXT = lazy(r"(?:[\w./^$(+;]|-(?=[\w-]))[^#:]*(?:(?:(?<! )#|:(?=[^ ]))[^#:]*)*")
_IN_FLOW = lazy(r"(?:[\w./^$(+;]|-(?=[\w-]))[^#:?,\[\]{}]*")
_QUOTED = lazy(r"""("[^"\\]*(?:\\[\\"][^"\\]*)*")|'([^']*(?:''[^']*)*)'""")
_PRINTED = lazy("[\n\x20-\x7e\u2018\u2019]*")


def load(text: str) -> Any:
    """Read the lists, maps and texts of a document. Raises NotPlain."""
    if not _PRINTED.fullmatch(text):
        raise NotPlain
    lines = _Lines(text)
    value = lines.block(lines.indent)
    if not lines.ended:
        raise NotPlain
    return value


def flow(text: str) -> Any:
    """Read a quoted text, or a list or map between brackets. Raises NotPlain."""
    value, rest = _flow(text)
    if rest:
        raise NotPlain
    return value


class _Lines:
    """The lines that are not read yet, without blank lines and comments; `indent` and `line` are of the first."""

    def __init__(self, text: str) -> None:
        self._left = text.split("\n")[::-1]
        self._next()

    @property
    def ended(self) -> bool:
        return self.indent < 0

    def _next(self) -> None:
        self.indent, self.line = -1, ""
        while self._left and self.indent < 0:
            line = self._left.pop()
            text = line.lstrip(" ")
            if text and not text.startswith("#"):
                self.indent, self.line = len(line) - len(text), text.rstrip(" ")

    def block(self, indent: int) -> Any:
        """Read the map or list whose lines have this indentation."""
        return self._items(indent) if self.line.startswith("- ") else self._pairs(indent)

    def _items(self, indent: int) -> list[Any]:
        found = []
        while self.indent == indent and self.line.startswith("- "):
            text = self.line[2:].lstrip(" ")
            if _KEY.match(text):
                self.indent += len(self.line) - len(text)
                self.line = text
                found.append(self._pairs(self.indent))
            else:
                found.append(self._value(text))
        self._whole(found, indent)
        return found

    def _pairs(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.indent == indent and (key := _KEY.match(self.line)):
            text = self.line[key.end() :]
            if key[1] in found:
                raise NotPlain
            if text:
                found[key[1]] = self._folded(indent) if text == ">-" else self._value(text)
            else:
                found[key[1]] = self._inner(indent)
        self._whole(found, indent)
        return found

    def _whole(self, found: Sized, indent: int) -> None:
        """Refuse a map or list that is empty, or continues in another form."""
        if not found or self.indent >= indent:
            raise NotPlain

    def _inner(self, indent: int) -> Any:
        self._next()
        if self.indent <= indent:
            raise NotPlain
        return self.block(self.indent)

    def _value(self, text: str) -> Any:
        """Read the value of one line."""
        self._next()
        if text[0] in "\"'[{":
            return flow(text)
        if not _TEXT.fullmatch(text):
            raise NotPlain
        return text

    def _folded(self, indent: int) -> str:
        """Join lines of one indentation that is more than `indent`, with blanks."""
        parts: list[str] = []
        margin = inner = " " * (indent + 1)
        while self._left and self._left[-1].startswith(margin):
            line = self._left.pop()
            inner = inner if parts else line[: len(line) - len(line.lstrip(" "))]
            if not line.startswith(inner) or line[len(inner) :][:1] in ("", " "):
                raise NotPlain
            parts.append(line[len(inner) :])
        while self._left and not self._left[-1].strip(" "):
            self._left.pop()
        if not parts or (self._left and self._left[-1].startswith(margin)):
            raise NotPlain
        self._next()
        return " ".join(parts)


def _flow(text: str) -> tuple[Any, str]:
    """Return the value at the start of a text, and the rest."""
    if text.startswith("["):
        return _flow_list(text[1:].lstrip(" "))
    if text.startswith("{"):
        return _flow_map(text[1:].lstrip(" "))
    if found := _QUOTED.match(text):
        value = json.loads(found[1]) if found[1] else found[2].replace("''", "'")
        return value, text[found.end() :]
    if found := _IN_FLOW.match(text):
        return found[0].rstrip(" "), text[found.end() :]
    raise NotPlain


def _flow_list(text: str) -> tuple[list[Any], str]:
    found = []
    while True:
        value, text = _flow(text)
        found.append(value)
        text, ended = _after(text, "]")
        if ended:
            return found, text


def _flow_map(text: str) -> tuple[dict[str, Any], str]:
    found: dict[str, Any] = {}
    while key := _KEY.match(text):
        if key[1] in found:
            raise NotPlain
        found[key[1]], text = _flow(text[key.end() :])
        text, ended = _after(text, "}")
        if ended:
            return found, text
    raise NotPlain


def _after(text: str, end: str) -> tuple[str, bool]:
    """Skip a comma or the end of a list or map. Return the rest, and whether it was that end."""
    text = text.lstrip(" ")
    if text[:1] not in (",", end):
        raise NotPlain
    return text[1:].lstrip(" "), text[0] == end
