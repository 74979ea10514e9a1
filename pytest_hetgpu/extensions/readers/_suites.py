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
        self._failed: dict[str, None] = {}
        self._cut = 0

    @abc.abstractmethod
    def feed(self, line: str) -> None:
        """Take one line without its end."""

    @abc.abstractmethod
    def finish(self) -> SuiteResult | None:
        """Return the result after the last line; None if the output has none."""

    def _fail(self, name: str) -> None:
        if name not in self._failed and len(self._failed) >= MOST_NAMES:
            self._cut += 1
            return
        self._failed.setdefault(name[:_LONGEST_NAME])

    def _result(self, tests: int, skipped: int) -> SuiteResult:
        return SuiteResult(max(tests, len(self._failed)), tuple(self._failed), skipped, self._cut)


class TapReader(SuiteReader):
    """Lines `ok 1 - NAME` and `not ok 2 - NAME`. A failed test that is marked `# TODO` has not failed."""

    _TEST = re.compile(r"(not )?ok(?:[ \t]+(\d{1,9}))?(?:[ \t]+(?:- ?)?(.*))?")
    _PLAN = re.compile(r"1\.\.(\d{1,9})\b")
    _DIRECTIVE = re.compile(r"(?<!\\)#\s*(skip|todo)\b", re.IGNORECASE)
    _BAIL_OUT = "Bail out!"

    def __init__(self) -> None:
        super().__init__()
        self._tests: dict[tuple[str, str], bool] = {}
        self._planned = 0

    def feed(self, line: str) -> None:
        if found := self._TEST.fullmatch(line):
            self._take(bool(found[1]), found[2] or "", (found[3] or "").strip())
        elif found := self._PLAN.match(line):
            self._planned = max(self._planned, int(found[1]))
        elif line.startswith(self._BAIL_OUT):
            self._fail(line.strip())

    def _take(self, bad: bool, number: str, text: str) -> None:
        directive = self._DIRECTIVE.search(text)
        name = (text[: directive.start()] if directive else text).strip().replace("\\#", "#") or f"test {number}"
        if len(self._tests) < _MOST_TESTS:
            skipped = bool(directive) and directive is not None and directive[1].lower() == "skip"
            self._tests.setdefault((number, name), skipped)
        if bad and not directive:
            self._fail(name)

    def finish(self) -> SuiteResult | None:
        if not self._tests and not self._failed:
            return None
        if len(self._tests) < self._planned:
            self._fail(f"{self._planned - len(self._tests)} of {self._planned} planned tests, which did not run")
        return self._result(max(len(self._tests), self._planned), sum(self._tests.values()))


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
            self._fail(f"{whole}{found[3].rstrip()}")
        elif found := self._RAN.fullmatch(line):
            self._ran = max(self._ran or 0, int(found[1]))
        elif found := self._SKIPPED.match(line):
            self._skipped = max(self._skipped, int(found[1]))

    def finish(self) -> SuiteResult | None:
        if self._ran is None and not self._failed:
            return None
        return self._result(self._ran or 0, self._skipped)


READERS: dict[str, type[SuiteReader]] = {"tap": TapReader, "unittest": UnittestReader}
