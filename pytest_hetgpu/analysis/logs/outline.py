"""Outline of a run: where an attempt began again, what alarms, where its ranks began and its program made progress.

Positions are line numbers from 1. Progress is searched after the scan in a few lines only. So its cost does not depend
on the length of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from pytest_hetgpu.analysis.logs.candidates import Candidates
from pytest_hetgpu.analysis.logs.program_lines import is_progress, is_rank_line
from pytest_hetgpu.extensions.signatures.base import LogLine
from pytest_hetgpu.model.lazy_regex import lazy

_WINDOW = 150
_FEWEST = 2
_ENOUGH = 8
_NEARLY_ALL = 0.97
_MOST = 64
_LONGEST = 1000

# Sources: torchrun's elastic/agent/server/api.py; others are customary.
_AGAIN = lazy(
    r"(?i:\b(?:re-?try(?:ing)?|re-?start(?:ing|ed)?|re-?launch(?:ing)?|re-?submit\w*|re-?queue\w*|re-?run(?:ning)?"
    r"|trying again)\b[^.]{0,60}"
    r"(?:\b(?:\d+|again|job|run|worker|second|third|next|last|now|command|in)\b|$|\.\.\.)"
    r"|\battempt\W{0,3}#?\d)"
)
_FIRST = lazy(r"(?i:\b(?:attempt|try|retry|run)\W{0,3}#?[01]\b)")
_OPTION = lazy(
    r"(?i:re-?tr\w+\s*[=:]|max\w*[ _-]?(?:re-?tr|restart|attempt)|--?\w*(?:retry|restart)|\bretry (?:limit|count))"
)
_ABOUT_START = lazy(
    r"(?i:\b(?:error|fail\w*|abort\w*|launch\w*|unable|attempting|could not|cannot|lost|warn\w*|exit\w*|fatal"
    r"|killed|exceeded)\b)"
)
_FRAME = lazy(r'^\s+File "')
# Open MPI's help texts (opal/util/show_help.c).
_RULE = lazy(r"^-{50,}\s*$")

_ALARM = lazy(
    r"Traceback \(most recent call last\)|\bis stuck\b|\b[Kk]illing\b|\(core dumped\)|Process received signal"
    r"|Caught signal \d|\bfatal signal\b|\b[Ss]egmentation (?:fault|violation)\b|\bAborted\b"
    r"|\bterminate called\b|\b[Ss]tack trace\b|\bFATAL\b|(?<!0 )\bFAILED\b(?!\W{0,3}0\b)|^\W{0,3}[Ff]atal\b"
)
_LEVEL = lazy(r"\b(?:INFO|DEBUG|WARN(?:ING)?|NOTICE)\b")
_ERROR = lazy(r"(?:^|[\s\[(|:])ERROR(?:[\]:\s|)]|$)|(?:^|\s)[Ee]rror: ")


class Attempts:
    """Collector of lines that begin another attempt."""

    triggers = (b"etry", b"etries", b"estart", b"elaunch", b"equeue", b"esubmit", b"erun", b"rying again", b"tempt")

    def __init__(self) -> None:
        self._begun: deque[int] = deque(maxlen=_MOST)
        self._candidates = Candidates(self._search)
        self.feed = self._candidates.add

    def _search(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        if _AGAIN.search(text) and not _FIRST.search(text) and not _OPTION.search(text):
            self._begun.append(line.number)

    @property
    def last(self) -> int:
        """The line at which the last attempt begins, 0 if there is one attempt only."""
        self._candidates.search()
        return self._begun[-1] if self._begun else 0


class Alarms:
    """Collector of lines with text of a failure that no parser need match."""

    triggers = (
        *(b"Traceback (most recent call last)", b" is stuck", b"illing", b"core dumped", b"Process received signal"),
        *(b"Caught signal", b"fatal signal", b"egmentation", b"Aborted", b"terminate called", b"Stack trace"),
        *(b"ERROR", b"Error:", b"error:", b"FATAL", b"Fatal", b"FAILED"),
    )

    def __init__(self) -> None:
        self._alarm: LogLine | None = None
        self._errors: dict[int, LogLine] = {}
        self._candidates = Candidates(self._search)
        self.feed = self._candidates.add

    def _search(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        if _ALARM.search(text) and not _LEVEL.search(text):
            self._alarm = line
        if line.rank is not None and _ERROR.search(text) and (line.rank in self._errors or len(self._errors) < _MOST):
            self._errors[line.rank] = line

    @property
    def lines(self) -> Sequence[LogLine]:
        """The last alarming line, and the last line of level ERROR of each rank, if several ranks have one."""
        self._candidates.search()
        last = [self._alarm] if self._alarm else []
        return [*last, *self._errors.values()] if len(self._errors) > 1 else last


def first_rank_line(head: Iterable[str], texts: Iterable[str]) -> int | None:
    """Return the number of the first line that only a rank writes, from the first lines of the log.

    `texts` are the same lines without prefixes. Help texts between rules, and messages about a start, are not of ranks.
    A tag that nearly all of the lines have distinguishes none.
    """
    lines = list(zip(head, texts, strict=True))
    tags = [is_rank_line(whole) for whole, text in lines if text.strip()]
    tagged = len(tags) >= _ENOUGH and sum(tags) >= _NEARLY_ALL * len(tags)
    inside = False
    for number, (whole, text) in enumerate(lines, 1):
        inside ^= _RULE.match(text) is not None
        if inside or _ABOUT_START.search(text if tagged else whole):
            continue
        if is_rank_line(text) or (not tagged and is_rank_line(whole)):
            return number
    return None


def progress_between(
    read: Callable[[int, int], Sequence[LogLine]], first: int, last: int, skip: frozenset[int] = frozenset()
) -> bool:
    """Return whether the program made progress in the lines after `first` and before `last`.

    `read` returns lines by their numbers, both included. Searched are the first and the last lines of the range.
    """
    head = read(first + 1, min(last - 1, first + _WINDOW))
    tail = read(max(first + _WINDOW + 1, last - _WINDOW), last - 1) if last - first > _WINDOW else ()
    # The line after `File "x.py", line 3` is source code.
    found, source = 0, False
    for line in (*head, *tail):
        found += not source and line.number not in skip and is_progress(line.text[:_LONGEST])
        source = _FRAME.match(line.text) is not None
    return found >= _FEWEST
