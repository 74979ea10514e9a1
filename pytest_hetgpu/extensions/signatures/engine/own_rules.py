"""Rules of users. Their patterns are searched in bounded time, as users write them and logs hold anything.

RE2's time grows with the text alone. Without RE2 (on a machine that has no wheel of it) `re` searches the beginning of
a line, and repetitions inside of repetitions are refused.
"""

from __future__ import annotations

import re
import types
from collections.abc import Sequence
from typing import cast

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.output_patterns import compiled
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser, SearchPattern
from pytest_hetgpu.model.lazy_regex import lazy

_LONGEST = 500
_TOKEN = lazy(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]|(?P<repeat>[*+]|\{\d*,?\d*\})|.", re.DOTALL)


class _Beginning:
    """Search with `re` in the beginning of a line."""

    def __init__(self, pattern: str) -> None:
        self._search = re.compile(pattern).search

    def search(self, text: str, /) -> re.Match[str] | None:
        """Return the first match; None if there is none."""
        return self._search(text[:_LONGEST])


def own_parser(rules: Sequence[MatchRule]) -> type[RuleParser]:
    """Return the parser of rules of a user."""
    return types.new_class(
        "OwnRules", (RuleParser,), exec_body=lambda names: names.update(rules=rules, compiled=staticmethod(bounded))
    )


def bounded(pattern: str) -> SearchPattern:
    """Compile a pattern. Raises ValueError with the reason if RE2 refuses it, or `re` in its place."""
    try:
        return cast("SearchPattern", compiled(pattern))
    except NotHere:
        if nests(pattern):
            raise ValueError(f"{pattern!r} repeats a repetition, which needs google-re2") from None
        try:
            return _Beginning(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from None


def nests(pattern: str) -> bool:
    """Return whether a group that holds a repetition is itself repeated."""
    open_groups, closed = [False], False
    for token in _TOKEN.finditer(pattern):
        repeats = token["repeat"] is not None
        if repeats and closed:
            return True
        if token[0] == "(":
            open_groups.append(False)
        closed = token[0] == ")" and len(open_groups) > 1 and open_groups.pop()
        open_groups[-1] |= closed or repeats
    return False
