"""Files of rules that are shipped: triggers are read at the start, a row at the first line that holds one of them.

Most logs need few of the rows. So a start reads a megabyte of them in the time in which YAML reads a tenth of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_hetgpu.extensions.signatures.engine.match_rule import MatchRule, rule_of
from pytest_hetgpu.model import plain_yaml
from pytest_hetgpu.model.lazy_regex import lazy

SHIPPED = Path(__file__).parents[1] / "rows"

_ROW = lazy(
    r"^  (?P<id>[\w.+-]+):\n    trigger:(?: (?P<one>.+)|(?P<many>(?:\n      - .+)+))\n(?P<rest>(?:    .*\n)*)",
    re.MULTILINE,
)
_WITHIN = lazy(r"^    within: (\d+)$", re.MULTILINE)
_RULES = "\nrules:\n"
_USUAL = 10


class RuleFile:
    """A file of rules in the plain form that shipped files have. A test compares it with what YAML reads."""

    def __init__(self, text: str) -> None:
        head, _, body = text.partition(_RULES)
        self._head = head
        self.rows = tuple(RuleRow(self, found) for found in _ROW.finditer(body))
        self.triggers = tuple(trigger for row in self.rows for trigger in row.triggers)
        #: The most lines after a trigger that a row asks for.
        self.context = max(_USUAL, *map(int, _WITHIN.findall(body)), 0) if "\n    then: " in body else 0

    @cached_property
    def head(self) -> Mapping[str, Any]:
        """The part before the rules: their source, `defaults` and `definitions`."""
        found: Mapping[str, Any] = plain_yaml.load(self._head)
        return found


class RuleRow:
    """A row of a file, and its triggers."""

    def __init__(self, file: RuleFile, found: re.Match[str]) -> None:
        self._file = file
        self._rest = found["rest"]
        self.id = found["id"]
        self.triggers = _triggers(found["one"], found["many"])

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        """The row without its triggers, with defaults of the file; all values are texts, or lists of them."""
        return {**self._file.head.get("defaults", {}), **plain_yaml.load(self._rest)}

    def rule(self, trigger: str) -> MatchRule:
        """Return the rule of one of its triggers."""
        return rule_of(self.id, trigger, self.fields, self._file.head.get("definitions", {}))


def _triggers(one: str | None, many: str | None) -> tuple[str, ...]:
    if one and one[0] == "[":
        return tuple(plain_yaml.flow(one))
    given = (one,) if one else (line[8:] for line in (many or "").split("\n")[1:])
    return tuple(plain_yaml.flow(text) if text[0] in "\"'" else text for text in given)


def shipped_rows(name: str) -> RuleFile:
    """Return the shipped file of this name."""
    return RuleFile((SHIPPED / f"{name}.yaml").read_text(encoding="utf-8"))


def names() -> Iterator[str]:
    """Yield the names of the shipped files."""
    return (path.stem for path in SHIPPED.glob("*.yaml"))
