"""JSON of another program: every error in it is a MalformedInventory with its line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pytest_hetgpu.extensions.inventories.base import MalformedInventory
from pytest_hetgpu.model.messages import show

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
# Finding a line reads the text again up to it.
_MOST_LINES = 300

Path = Sequence[str | int]


class JsonText:
    """A JSON text; positions in it are paths of keys and indexes, like `("nodes", 3, "gres")`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._asked = 0
        try:
            self.root: Any = _DECODER.decode(text)
        except json.JSONDecodeError as error:
            raise MalformedInventory(error.lineno, f"not JSON: {error.msg}, column {error.colno}") from None
        except RecursionError:
            raise MalformedInventory(None, "not to be read: nested too deeply") from None
        except ValueError as error:  # a number of thousands of digits
            raise MalformedInventory(None, f"not to be read: {error}") from None

    def line(self, path: Path) -> int:
        """Return the line of a position, or of the innermost existing parent."""
        at = _BLANK.match(self._text, 0).end()  # type: ignore[union-attr]
        for part in path:
            inner = self._inside(at, part)
            if inner is None:
                break
            at = inner
        return self._text.count("\n", 0, at) + 1

    def where(self, path: Path) -> int | None:
        """Return the line of a position for a report; None after many calls, as each reads the text again."""
        self._asked += 1
        return self.line(path) if self._asked <= _MOST_LINES else None

    def take(self, value: Any, kind: type, path: Path, what: str) -> Any:
        """Return a value of the required type. Raises MalformedInventory with its position and actual value."""
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise MalformedInventory(self.line(path), f"{place(path)} must be {what}, not {show(value)}")
        return value

    def _inside(self, at: int, wanted: str | int) -> int | None:
        text, closing = self._text, {"{": "}", "[": "]"}.get(self._text[at])
        if closing is None:
            return None
        at = self._after(at + 1)
        index = 0
        while text[at] != closing:
            name: str | int = index
            if closing == "}":
                name, at = _DECODER.raw_decode(text, at)
                at = self._after(self._after(at) + 1)
            if name == wanted:
                return at
            at = self._after(_DECODER.raw_decode(text, at)[1])
            at = self._after(at + 1) if text[at] == "," else at
            index += 1
        return None

    def _after(self, at: int) -> int:
        return _BLANK.match(self._text, at).end()  # type: ignore[union-attr]


def place(path: Path) -> str:
    """Format a position: `nodes[3].gres`; "the file" for all of it."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_key(part)}" for part in path)
    return text.lstrip(".") or "the file"


def _key(part: str) -> str:
    return part if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", part) else show(part)
