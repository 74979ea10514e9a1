"""Results of test suites in the output of ranks: the Test Anything Protocol (TAP), and unittest of Python.

A reader takes the output of one rank. `merged` joins the results of ranks: they print the same tests, so that equal
names are one test. It has failed if it failed on any rank.

Sources: TAP 14 (testanything.org/tap-version-14-specification.html); `unittest/runner.py` of CPython 3.8 to 3.13.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_hetgpu.model.program_output import BAIL_OUT, MOST_NAMES, SuiteResult

_MOST_TESTS = 100_000
_LONGEST_NAME = 200


def merged(results: Sequence[SuiteResult]) -> SuiteResult:
    """Return the result of a suite that several ranks ran."""
    failed = tuple(dict.fromkeys(name for result in results for name in result.failed))
    more = max(len(failed) - MOST_NAMES, 0)
    return SuiteResult(
        tests=max(len(failed), *(result.tests for result in results)),
        failed=failed[:MOST_NAMES],
        skipped=min(result.skipped for result in results if result.tests == max(one.tests for one in results)),
        more=max(more, *(result.more for result in results)),
        missing=max(result.missing for result in results),
        whole=all(result.whole for result in results),
    )


class SuiteReader(abc.ABC):
    """Takes the lines of one rank, and returns the result of the suite.

    After `finish`, `unfinished` is the reason why the suite did not end, "" if it did.
    """

    unfinished = ""

    def __init__(self) -> None:
        self._failed: dict[str, str] = {}

    @abc.abstractmethod
    def feed(self, line: str) -> None:
        """Take one line without its end."""

    @abc.abstractmethod
    def finish(self) -> SuiteResult | None:
        """Return the result after the last line; None if the output has none."""

    def _fail(self, key: str, name: str) -> None:
        """Keep a failed test, whose key is the same on every rank."""
        if len(self._failed) < _MOST_TESTS:
            self._failed.setdefault(key[:_LONGEST_NAME], name[:_LONGEST_NAME])

    def _result(self, tests: int, skipped: int, missing: int = 0, *, whole: bool = True) -> SuiteResult:
        names = tuple(dict.fromkeys(self._failed.values()))
        more = len(names) - MOST_NAMES
        return SuiteResult(max(tests, len(names)), names[:MOST_NAMES], skipped, max(more, 0), missing, whole)


@dataclass(slots=True)
class _Document:
    """A TAP document: the number in its plan, None so far, and whether each test was skipped, by number."""

    planned: int | None = None
    plan_last: bool = False
    tests: dict[int, bool] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        """Number of planned tests that did not run."""
        return max(0, (self.planned or 0) - len(self.tests))


class TapReader(SuiteReader):
    """Lines `ok 1 - NAME` and `not ok 2 - NAME`. A failed test that is marked `# TODO` has not failed.

    A test without a number has the one after the last. The plan `1..N` comes first or last, and a document without one
    did not end. A rank may print several documents, one after another.
    """

    _TEST = re.compile(r"(not )?ok(?:[ \t]+(\d{1,9}))?(?:[ \t]+(?:- ?)?(.*))?")
    _PLAN = re.compile(r"1\.\.(\d{1,9})\s*(?:#.*)?")
    _DIRECTIVE = re.compile(r"(?<!\\)#\s*(skip|todo)\b", re.IGNORECASE)

    def __init__(self) -> None:
        super().__init__()
        self._documents: list[_Document] = []
        self._last = 0
        self._kept = 0

    def feed(self, line: str) -> None:
        if found := self._TEST.fullmatch(line):
            self._take(bool(found[1]), found[2] or "", (found[3] or "").strip())
        elif found := self._PLAN.fullmatch(line):
            self._plan(int(found[1]))
        elif line.startswith(BAIL_OUT):
            self._fail(line.strip(), line.strip())

    def _plan(self, planned: int) -> None:
        if not self._documents or self._documents[-1].planned is not None:
            self._begin()
        document = self._documents[-1]
        document.planned, document.plan_last = planned, bool(document.tests)

    def _begin(self) -> None:
        self._documents.append(_Document())
        self._last = 0

    def _take(self, bad: bool, number: str, text: str) -> None:
        own = int(number) if number else self._last + 1
        if not self._documents or self._documents[-1].plan_last or own in self._documents[-1].tests:
            self._begin()
            own = int(number) if number else 1
        self._last = own
        directive = self._DIRECTIVE.search(text)
        name = (text[: directive.start()] if directive else text).strip().replace("\\#", "#") or f"test {own}"
        self._kept += 1
        if self._kept <= _MOST_TESTS:
            self._documents[-1].tests[own] = directive is not None and directive[1].lower() == "skip"
        if bad and not directive:
            self._fail(f"{len(self._documents)}.{own}", name)

    def finish(self) -> SuiteResult | None:
        documents = self._documents
        if not documents and not self._failed:
            return None
        missing = sum(document.missing for document in documents) if self._kept <= _MOST_TESTS else 0
        planless = any(document.planned is None for document in documents)
        beyond = any(one.planned is not None and max(one.tests, default=0) > one.planned for one in documents)
        if planless:
            self.unfinished = "the tests have no plan (1..N)"
        elif beyond:
            self.unfinished = "the tests have numbers beyond their plan (1..N)"
        tests = sum(max(len(document.tests), document.planned or 0) for document in documents)
        skipped = sum(sum(document.tests.values()) for document in documents)
        return self._result(tests, skipped, missing, whole=not (missing or self.unfinished or self._failed_to_end()))

    def _failed_to_end(self) -> bool:
        return any(name.startswith(BAIL_OUT) for name in self._failed)


class UnittestReader(SuiteReader):
    """Headings `FAIL: test (module.Class)` and `ERROR: ...`, the line `Ran 12 tests in 0.1s`, and `OK` or `FAILED`."""

    _HEADING = re.compile(r"(?:FAIL|ERROR|UNEXPECTED SUCCESS): (\S+) \(([\w.<>-]+)\)(.*)")
    _RAN = re.compile(r"Ran (\d{1,9}) tests? in [\d.]+s")
    _END = re.compile(r"(OK|FAILED|NO TESTS RAN)(?: \((.*)\))?")
    _SKIPPED = re.compile(r"\bskipped=(\d{1,9})")

    def __init__(self) -> None:
        super().__init__()
        self._ran = self._skipped = self._runs = self._ends = 0
        self._bad = ""

    def feed(self, line: str) -> None:
        if found := self._HEADING.fullmatch(line):
            name, owner = found[1], found[2]
            whole = owner if owner.rpartition(".")[2] == name else f"{owner}.{name}"
            name = f"{whole}{found[3].rstrip()}"
            self._fail(name, name)
        elif found := self._RAN.fullmatch(line):
            self._ran += int(found[1])
            self._runs += 1
        elif self._runs > self._ends and (found := self._END.fullmatch(line)):
            self._ends += 1
            skipped = self._SKIPPED.search(found[2] or "")
            self._skipped += int(skipped[1]) if skipped else 0
            self._bad = line if found[1] == "FAILED" else self._bad

    def finish(self) -> SuiteResult | None:
        if not self._runs and not self._failed:
            return None
        if self._bad and not self._failed:
            self._fail(self._bad, self._bad)
        whole = 0 < self._runs == self._ends
        self.unfinished = "" if whole else "the tests did not end with `OK` or `FAILED`"
        return self._result(self._ran, self._skipped, whole=whole)


READERS: dict[str, type[SuiteReader]] = {"tap": TapReader, "unittest": UnittestReader}
