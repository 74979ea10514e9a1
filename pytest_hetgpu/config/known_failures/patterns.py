"""Search for the patterns of known failures in bounded time. Users write the patterns, and logs hold anything.

RE2's time grows with the text alone. Without RE2 (on a machine that has no wheel of it), `re` searches, and some
patterns then take forever.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.messages import show

_INSTEAD = {
    "(?=": "looks ahead: give the text that must follow as another pattern, or in `texts`",
    "(?!": "looks ahead: give the text that is there instead, or name the failure in `signature`",
    "(?<=": "looks behind: make the text before it part of the pattern",
    "(?<!": "looks behind: give the text that is there instead, or name the failure in `signature`",
    "(?P=": "repeats what a group has found: write the text out",
    "\\Z": "is the end in Python alone: write $",
}
_REPEATED = lazy(r"(?<!\\)(?:\\\\)*(\\[1-9])")
_SYNTAX = "https://github.com/google/re2/wiki/Syntax"


def check(pattern: str) -> str:
    """Return the pattern if RE2 accepts it. Raises ValueError with the error and an alternative."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{show(pattern)} is no regular expression: {error}") from None
    _compiled(pattern)
    return pattern


def found(pattern: str, text: str) -> bool:
    """Return whether the pattern is found in the text. Raises ValueError for a pattern that `check` refuses."""
    search = _compiled(pattern)
    if search is None:
        return bool(re.search(pattern, text))
    return bool(search.search(text.encode(errors="replace")))


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    """Compile with RE2; None if RE2 is not installed."""
    try:
        import re2
    except ImportError:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern.encode(errors="replace"), options)
    except re2.error as error:
        raise ValueError(f"{show(pattern)} {_refused(pattern, error)}") from None


def _refused(pattern: str, error: Exception) -> str:
    """Return why RE2 refuses a pattern that `re` accepts, and the alternative."""
    repeated = _REPEATED.search(pattern)
    if repeated:
        return f"has {repeated[1]}, which {_INSTEAD['(?P=']}"
    for part, instead in _INSTEAD.items():
        if part in pattern:
            return f"has {part}, which {instead}"
    detail = error.args[0] if error.args else ""
    reason = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
    return f"is not in the syntax of RE2 ({reason}): {_SYNTAX}"
