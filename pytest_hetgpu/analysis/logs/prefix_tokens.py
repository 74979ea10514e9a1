"""Kinds of text in a line's prefix: times, names, levels. Content that looks like a prefix is listed, too."""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.signatures.engine.tools import TOOLS
from pytest_hetgpu.model.lazy_regex import lazy

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_CLOCK = r"\d\d?:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?[AaPp][Mm])?"
_ZONE = r"(?: ?(?:Z|UTC|[A-Z]{2,3}T|[+-]\d\d:?\d\d)(?!\w))?"
_DATE = rf"(?:\d{{4}}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/. ](?:\d\d?|{_MONTH})[-/. ]\d{{2,4}})"
_TIMES = (
    rf"{_DATE}(?:[T_:]|,? ){_CLOCK}{_ZONE}",
    rf"(?:{_DAY},? )?{_MONTH} [ \d]\d(?: \d{{4}})? {_CLOCK}{_ZONE}(?: \d{{4}})?",
    rf"{_DAY}, {_DATE} {_CLOCK}{_ZONE}",
    r"\d{8}[-T_]\d{6}(?:[.,]\d{1,9})?Z?",
    r"1\d{9}(?:[.,]\d{1,9}|\d{3}|\d{6}|\d{9})?(?!\d)",
    rf"{_CLOCK}{_ZONE}",
    r"\+\d+(?:\.\d+)?m?s",
)
TIME = rf"(?:{'|'.join(_TIMES)})(?![\w:])"
TIME_FORMS = (
    *(rf"(?:[\[(<] *)?{form}(?![\w:])(?: ?[\])>])?" for form in _TIMES),
    # A number alone is a time only in brackets: seconds since a start.
    r"[\[(<] *[+]?\d+\.\d+ ?m?s?[\])>]",
)
# All of them begin so, with the names of a day and a month at most.
NEAR_A_DIGIT = lazy(r"[\[(<+ ]*(?:[A-Z]\w\w,? ){0,2} ?\d")
WORD = r"[.@/~%*=-]*\w[\w.@/~%*=-]*"
TAG = rf"{WORD}(?:\[\d+\])?:(?!\w)"
BRACKET = r"\[[^\[\]]{0,160}\]|\([^()]{0,160}\)|<[^<>]{0,160}>|\{[^{}]{0,300}\}"
LEVEL = lazy(
    r"(?i:trace|debug|info|information|notice|warn|warning|error|err|crit|critical|fatal|severe|alert|emerg)(?!\w)"
)
NAME = lazy(r"(?=.*[A-Za-z])(?=.*[\d./@-])[\w./@~-]+")
NO_HOST = lazy(r"\d|.*(?:/|\.(?:log|out|err|txt|go|py|c|cc|cpp|java)$)|[0-9a-f]{12,}$")
RANKED = lazy(r"(?i:rank|task|worker|proc|process)[\s=:_#-]{0,2}$")
RANK_IN_BRACKET = lazy(r"(?i)\W(?:(?:rank|task|worker|proc|process)[\s=:_#-]{0,2})?\d{1,7}\W")

# Prefixes that libraries and launchers write themselves; parsers read hosts, pids and severities from them.
CONTENT = (
    r"(?:"
    # The host and process of Open MPI (opal/util/output.c) and of UCX (ucs/debug/log.c), the latter after a time.
    r"(?:\[\d+\.\d+\] (?=.*\bUC[XC]\b))?"
    r"\[(?!\d{4}-\d\d-\d\dT)(?=[^\[\]\s:]*[A-Za-z])[^\[\]\s:/]+:\d+(?:\s*:\s*\w+)*\s*\]"
    # The host, process and thread of NCCL and RCCL, see debug.cc.
    r"|(?=[\d.-]*[A-Za-z])[\w.-]+:\d+:\d+ \["
    # Severity and date of glog, with a bracket by torch.
    r"|\[?[WEIFC]\d{4,8} \d\d:\d\d:"
    rf"|(?:{TOOLS}|hetgpu): "
    r"|libfabric:\d+:|\[(?:mpiexec|proxy:)|\[\[\d+,\d+\],\d+\]|#\d+ |==\d+=="
    r")"
)
_CONTENT = lazy(CONTENT)


def is_content(text: str, at: int) -> bool:
    """Return whether such a prefix of a library begins at `at`."""
    return _CONTENT.match(text, at) is not None


def literal(text: str) -> str:
    """Return a pattern of a text whose numbers may differ."""
    return re.sub(r"\d+", lambda _: r"\d+", re.escape(text))
