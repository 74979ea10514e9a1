"""The patterns of known failures: users write them, logs are whatever they are, and no pair of the two may take long.

RE2 searches in a time that grows with the text alone. Where it is not installed (a machine without a wheel of it), `re`
searches, which some patterns keep busy for ever.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.messages import show

_INSTEAD = {
    "(?=": "looks ahead: say what must follow as a pattern of its own, or in `texts`",
    "(?!": "looks ahead: say what is there instead, or name the failure in `signature`",
    "(?<=": "looks behind: write what comes before as part of the pattern",
    "(?<!": "looks behind: say what is there instead, or name the failure in `signature`",
    "(?P=": "repeats what a group has found: write the text out",
    "\\Z": "is the end in Python alone: write $",
}
_REPEATED = lazy(r"(?<!\\)(?:\\\\)*(\\[1-9])")
_SYNTAX = "https://github.com/google/re2/wiki/Syntax"


def check(pattern: str) -> str:
    """The pattern, if it can be searched for anywhere. ValueError says what is wrong with it, and what to write."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{show(pattern)} is no regular expression: {error}") from None
    _compiled(pattern)
    return pattern


def found(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text. ValueError for one that `check` refuses."""
    search = _compiled(pattern)
    if search is None:
        return bool(re.search(pattern, text))
    return bool(search.search(text.encode(errors="replace")))


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    """RE2's pattern; None where RE2 is not installed."""
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
    """Why RE2 does not take a pattern that `re` does, and what to write instead."""
    repeated = _REPEATED.search(pattern)
    if repeated:
        return f"has {repeated[1]}, which {_INSTEAD['(?P=']}"
    for part, instead in _INSTEAD.items():
        if part in pattern:
            return f"has {part}, which {instead}"
    said = error.args[0] if error.args else ""
    reason = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return f"is not in the syntax of RE2 ({reason}): {_SYNTAX}"
