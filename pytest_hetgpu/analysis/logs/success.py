"""Signs of success in a log: an exit status of 0, a complete table of results, or a program's last words.

Each is one line, which a report can quote. A run without one may have passed, but its log does not show it.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_hetgpu.analysis.logs import success_forms as forms
from pytest_hetgpu.analysis.logs.candidates import Candidates
from pytest_hetgpu.extensions.signatures.base import LogLine
from pytest_hetgpu.model.lazy_regex import lazy

_LONGEST = 1000
_MOST = 64
_REPORT, _FEWEST_FIGURES = 5, 3


class Proof(enum.Enum):
    """Kind of a sign, the strongest first."""

    STATUS = "exit status 0"
    TESTS = "tests passed"
    RESULT = "result"
    WORDS = "last words"
    FINALIZE = "orderly end of the libraries"


@dataclass(frozen=True, slots=True)
class Success:
    """A line that shows success; `line` counts from 1."""

    proof: Proof
    line: int
    quote: str


_FORMS = {
    Proof.STATUS: lazy("|".join(forms.STATUS)),
    Proof.TESTS: lazy("|".join(forms.TESTS)),
    Proof.RESULT: lazy("|".join(forms.RESULT)),
    Proof.WORDS: lazy("|".join(forms.WORDS)),
    Proof.FINALIZE: lazy("|".join(forms.FINALIZE)),
}
# Each report of tests has one of these words.
_OF_TESTS = ("pass", "PASSED", "OK", " ok", "skipped", "deselected", "succe")
_ALL = lazy(forms.ALL)
_COUNTED = lazy(forms.COUNTED)
_ROW = lazy(forms.ROW)
_FIGURE = lazy(forms.FIGURE)
_DENIED = lazy("|".join(forms.DENIED))
_NO_FAILURES = lazy(forms.NO_FAILURES)


def sign_of_success(line: LogLine) -> Success | None:
    """Return the sign in a line, None without one; a line that also reports a failure is none."""
    text = line.text[:_LONGEST]
    if _ALL.search(text):
        return Success(Proof.STATUS, line.number, line.quote)
    if _DENIED.search(text) and not _NO_FAILURES.search(text):
        return None
    for proof, form in _FORMS.items():
        if form.search(text) and not (proof is Proof.WORDS and _unfinished(text)):
            return Success(proof, line.number, line.quote)
    return None


def passed_tests(line: LogLine) -> Success | None:
    """Return the sign in a line if it is a report of tests that passed."""
    text = line.text[:_LONGEST]
    if not any(word in text for word in _OF_TESTS) or not _FORMS[Proof.TESTS].search(text):
        return None
    sign = sign_of_success(line)
    return sign if sign and sign.proof is Proof.TESTS else None


def _unfinished(text: str) -> bool:
    counted = _COUNTED.search(text)
    if counted is None:
        return False
    done, whole = (number for number in counted.groups() if number is not None)
    return int(done[:9]) < int(whole[:9])


class SuccessSigns:
    """Collects signs of the whole log; of many it keeps the last.

    `triggers` are parts of lines that may hold one. The last lines of a log are searched without them (`signs_at_end`).
    """

    triggers = forms.TRIGGERS

    def __init__(self) -> None:
        self._found: deque[Success] = deque(maxlen=_MOST)
        self._candidates = Candidates(self._search)
        self.feed = self._candidates.add

    def _search(self, line: LogLine) -> None:
        found = sign_of_success(line)
        if found is not None:
            self._found.append(found)

    @property
    def found(self) -> Sequence[Success]:
        """Return the last signs, in the order of lines."""
        self._candidates.search()
        return tuple(self._found)

    @property
    def tests(self) -> Success | None:
        """The last report of tests that passed. No other kind of sign is searched."""
        last = next(filter(None, map(passed_tests, reversed(self._candidates.lines))), None)
        return last or next((sign for sign in reversed(self._found) if sign.proof is Proof.TESTS), None)


def signs_at_end(lines: Sequence[LogLine]) -> Iterator[Success]:
    """Yield the signs in the last lines of a log.

    They are each of one line, a report of several named figures at the end, and a table over sizes that double.
    """
    yield from (found for line in lines if (found := sign_of_success(line)) is not None)
    last = [line for line in lines if line.text.strip()][-_REPORT:]
    if sum(_FIGURE.match(line.text[:_LONGEST]) is not None for line in last) >= _FEWEST_FIGURES:
        yield Success(Proof.WORDS, last[-1].number, last[-1].quote)
    rows = [(int(row[1]), line) for line in lines if (row := _ROW.match(line.text[:_LONGEST]))]
    if len(rows) > 1 and rows[-1][0] in (2 * rows[-2][0], 4 * rows[-2][0]):
        yield Success(Proof.WORDS, rows[-1][1].number, rows[-1][1].quote)
