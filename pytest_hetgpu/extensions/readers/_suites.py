"""Results of test suites in the output of ranks: the Test Anything Protocol (TAP), and unittest of Python.

Ranks print the same tests, so that equal names are one test. It has failed if it failed on any rank.

Sources: TAP 14 (testanything.org/tap-version-14-specification.html); `unittest/runner.py` of CPython 3.8 to 3.13.
"""

from __future__ import annotations

import abc
import re

from pytest_hetgpu.model.program_output import MOST_NAMES, SuiteResult

_MOST_TESTS = 100_000
_LONGEST_NAME = 200


class SuiteReader(abc.ABC):
    """Takes the lines of an output, and returns the result of the suite."""

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


class TapReader(SuiteReader):
    """Lines `ok 1 - NAME` and `not ok 2 - NAME`. A failed test that is marked `# TODO` has not failed.

    A test is known by its number, else by its name. The plan `1..N` may come first or last.
    """

    _TEST = re.compile(r"(not )?ok(?:[ \t]+(\d{1,9}))?(?:[ \t]+(?:- ?)?(.*))?")
    _PLAN = re.compile(r"1\.\.(\d{1,9})\b")
    _DIRECTIVE = re.compile(r"(?<!\\)#\s*(skip|todo)\b", re.IGNORECASE)
    _BAIL_OUT = "Bail out!"

    def __init__(self) -> None:
        super().__init__()
        self._tests: dict[str, bool] = {}
        self._planned = 0
        self._numbered = True
        self._bailed_out = False

    def feed(self, line: str) -> None:
        if found := self._TEST.fullmatch(line):
            self._take(bool(found[1]), found[2] or "", (found[3] or "").strip())
        elif found := self._PLAN.match(line):
            self._planned = max(self._planned, int(found[1]))
        elif line.startswith(self._BAIL_OUT):
            self._bailed_out = True
            self._fail(line.strip(), line.strip())

    def _take(self, bad: bool, number: str, text: str) -> None:
        directive = self._DIRECTIVE.search(text)
        name = (text[: directive.start()] if directive else text).strip().replace("\\#", "#") or f"test {number}"
        self._numbered = self._numbered and bool(number)
        key = number or name[:_LONGEST_NAME]
        if len(self._tests) < _MOST_TESTS:
            self._tests.setdefault(key, directive is not None and directive[1].lower() == "skip")
        if bad and not directive:
            self._fail(key, name)

    def finish(self) -> SuiteResult | None:
        if not self._tests and not self._failed:
            return None
        counted = self._numbered and len(self._tests) < _MOST_TESTS
        missing = max(0, self._planned - len(self._tests)) if counted else 0
        whole = bool(self._planned) and not missing and not self._bailed_out
        tests = max(len(self._tests), self._planned)
        return self._result(tests, sum(self._tests.values()), missing, whole=whole)


class UnittestReader(SuiteReader):
    """Headings `FAIL: test (module.Class)` and `ERROR: ...`, and the line `Ran 12 tests in 0.1s`."""

    _HEADING = re.compile(r"(?:FAIL|ERROR|UNEXPECTED SUCCESS): (\S+) \(([\w.<>-]+)\)(.*)")
    _RAN = re.compile(r"Ran (\d{1,9}) tests? in [\d.]+s")
    _SKIPPED = re.compile(r"(?:OK|FAILED|NO TESTS RAN) \(.*\bskipped=(\d{1,9})")

    def __init__(self) -> None:
        super().__init__()
        self._ran: int | None = None
        self._skipped = 0

    def feed(self, line: str) -> None:
        if found := self._HEADING.fullmatch(line):
            name, owner = found[1], found[2]
            whole = owner if owner.rpartition(".")[2] == name else f"{owner}.{name}"
            name = f"{whole}{found[3].rstrip()}"
            self._fail(name, name)
        elif found := self._RAN.fullmatch(line):
            self._ran = max(self._ran or 0, int(found[1]))
        elif found := self._SKIPPED.match(line):
            self._skipped = max(self._skipped, int(found[1]))

    def finish(self) -> SuiteResult | None:
        if self._ran is None and not self._failed:
            return None
        return self._result(self._ran or 0, self._skipped, whole=self._ran is not None)


READERS: dict[str, type[SuiteReader]] = {"tap": TapReader, "unittest": UnittestReader}
