"""The last error that a program printed before it called MPI_Abort."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_hetgpu.extensions.signatures.base import LogLine
from pytest_hetgpu.model.lazy_regex import lazy

NEAR = 6
"""Number of lines to search before the launcher's message about the abort."""

_SEPARATOR = lazy(r"^[\W_]*$")
_PROGRESS = lazy(r"(?i:\b(?:step|iter\w*|epoch|cycle|time|residual|loss|progress)\b)\W{0,3}.*\d|\d\s*%|^[\d\s.eE+-]*$")
_WORD = lazy(r"[A-Za-z]{2,}")
_COMPLAINT = lazy(
    r"(?i:\b(?:not|no|never|invalid|fail\w*|cannot|can't|could|unable|missing|wrong|exceed\w*|too|must|corrupt\w*|lost|bad"
    r"|expected|denied|unknown|illegal|unsupported|mismatch\w*|negative|nan|diverge\w*|abort\w*|error|out of)\b)|!\s*$"
)
_RANK = lazy(r"\b(?:rank|proc(?:ess)?|task|pe)[ :#=]{0,2}(?P<rank>\d{1,7})\b", re.IGNORECASE)
_FEWEST_WORDS = 2


def last_error(before: Sequence[LogLine], rank: int | None = None) -> LogLine | None:
    """Return the nearest line that complains before an abort by `rank`; None if all are ordinary output.

    A line that names another rank does not count.
    """
    for line in reversed(before[-NEAR:]):
        text = line.text[:1000]
        if _SEPARATOR.match(text) or _PROGRESS.search(text):
            continue
        named = _RANK.search(text)
        by = int(named["rank"]) if named else line.rank
        if None not in (by, rank) and by != rank:
            continue
        if len(_WORD.findall(text)) >= _FEWEST_WORDS and _COMPLAINT.search(text):
            return line
    return None
