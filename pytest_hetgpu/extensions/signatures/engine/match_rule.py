"""One rule: a text in a line, and the failure that it means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pytest_hetgpu.extensions.signatures.base import Phase, Priority
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

PART = lazy(r"%\{(\w+)\}")
"""Place of a definition in a pattern."""
TRIGGER = "TRIGGER"
"""The definition that is the rule's trigger itself."""


class _RuleFields(NamedTuple):
    """The fields of a `MatchRule`."""

    trigger: str
    kind: Kind
    key: str
    priority: Priority
    pattern: str | None
    then: str | None
    within: int
    quote_then: bool
    detail: str | None
    fatal: bool
    id: str
    phase: Phase | None


class MatchRule(_RuleFields):
    """One row: a line with `trigger`, in which `pattern` (if given) is found, is a failure of `kind`.

    `then` is searched in the next `within` lines, for details that the first line lacks; the first line is quoted
    unless `quote_then` is set. `fatal` and `phase` are copied to the match. `key` is a template over the named groups
    of both and over `trigger`, as a slug of its text; a missing group leaves no trace. `{group:slug}` takes a message,
    `{group}` a name. Groups named signal, detail, library, function, entry, host or rank become fields of the
    signature. A number in the group signal becomes the signal's name.

    A rule without a key marks harmless text. `weight` and `certain` are old names of `priority` and `fatal`.
    """

    __slots__ = ()

    def __new__(  # noqa: PLR0913, PLR0917, PYI034 - a field each; Self needs Python 3.11
        cls,
        trigger: str,
        kind: Kind = Kind.ERROR,
        key: str = "",
        priority: Priority = Priority.CAUSE,
        pattern: str | None = None,
        then: str | None = None,
        within: int = 10,
        quote_then: bool = False,
        detail: str | None = None,
        fatal: bool = True,
        id: str = "",  # noqa: A002 - the name of the field
        phase: Phase | None = None,
        *,
        weight: Priority | None = None,
        certain: bool | None = None,
    ) -> MatchRule:
        priority = priority if weight is None else weight
        fatal = fatal if certain is None else certain
        row = (trigger, kind, key, priority, pattern, then, within, quote_then, detail, fatal, id, phase)
        return tuple.__new__(cls, row)  # as the class of the fields does, without another call

    @property
    def weight(self) -> Priority:
        """Return the priority, under its old name."""
        return self.priority

    @property
    def certain(self) -> bool:
        """Return whether it is fatal, under the old name."""
        return self.fatal


def rule_of(id: str, trigger: str, row: Mapping[str, Any], definitions: Mapping[str, str]) -> MatchRule:  # noqa: A002
    """Return the rule of a row of a file, for one of its triggers. The row is valid; its values are texts."""
    return MatchRule(
        trigger,
        Kind(row.get("kind", Kind.ERROR)),
        row.get("key", ""),
        Priority[row.get("priority", "cause").upper()],
        expanded(row.get("pattern"), definitions, trigger),
        expanded(row.get("then"), definitions, trigger),
        int(row.get("within", 10)),
        row.get("quote_then") == "true",
        row.get("detail"),
        row.get("fatal") != "false",
        id,
        Phase(row["phase"]) if "phase" in row else None,
    )


def expanded(pattern: str | None, definitions: Mapping[str, str], trigger: str) -> str | None:
    """Return a pattern with its definitions, and the trigger, in place of their names.

    A definition may hold the trigger, but no other definition. Raises KeyError for an unknown name.
    """
    if not pattern or "%{" not in pattern:
        return pattern
    parts = {**definitions, TRIGGER: re.escape(trigger)}
    whole = PART.sub(lambda name: name[0] if name[1] == TRIGGER else parts[name[1]], pattern)
    return PART.sub(lambda name: parts[name[1]], whole)
