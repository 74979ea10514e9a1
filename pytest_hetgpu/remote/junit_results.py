"""Prints the results in a JUnit file as lines of the Test Anything Protocol.

The file is read on the node of its rank, so that nothing needs to be copied. Needs Python 3.8 only.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple
from xml.parsers import expat

LONGEST_FILE = 64 << 20
LONGEST_TEXT = 200


class Case:
    """One test case: its name, and how it ended: `ok`, `not ok` or `skip`, with the first line of a message.

    `of_assertions`: it has the form of Catch2 and doctest, whose suites count assertions instead of cases.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = "ok"
        self.message = ""
        self.of_assertions = False


def remove(file: str) -> None:
    """Remove a plain file or a link, if it exists."""
    try:
        mode = os.lstat(file).st_mode
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            Path(file).unlink()
    except OSError:
        pass  # the program reports a place that it cannot write to


def identity(file: str) -> Optional[Tuple[int, ...]]:
    """Return what changes if a plain file is written: device, inode, size and times; None without one."""
    try:
        found = Path(file).stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def print_results(file: str, stale: Optional[Tuple[int, ...]] = None) -> None:
    """Print a line for each test case; `Bail out!` with the reason if the file cannot be read.

    `stale` is the identity of a file that existed before the program, and could not be removed.
    """
    if stale is not None and identity(file) == stale:
        give_up(file, "the program did not write it, it is older than this run")
        return
    try:
        cases, contradiction = parse(read(file))
    except (OSError, ValueError, LookupError, expat.ExpatError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        give_up(file, reason or "")
        return
    for number, case in enumerate(cases, 1):
        skip = " # SKIP" if case.ended == "skip" else ""
        write(f"{'not ok' if case.ended == 'not ok' else 'ok'} {number} - {case.name}{skip}")
        if case.message:
            write(f"# {case.message}")
    if contradiction:
        give_up(file, contradiction)
    write(f"1..{len(cases)}")


def give_up(file: str, reason: str) -> None:
    """Write why the results do not count. The path has a line of its own, as it differs between ranks and hosts."""
    write(f"Bail out! JUnit file: {plain(reason)}")
    write(f"# {plain(file)}")


def read(file: str) -> bytes:
    """Return the contents of a plain file. Raises ValueError for another one, or if it is too large."""
    with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no plain file")
        if found.st_size > LONGEST_FILE:
            raise ValueError(f"it has more than {LONGEST_FILE >> 20} MiB")
        return opened.read(LONGEST_FILE)


class Counts:
    """The numbers that a suite claims in its attributes; -1 for none."""

    def __init__(self, attributes: Dict[str, str], first: int) -> None:
        self.name = plain(attributes.get("name", ""))
        self.first = first
        self.tests = count(attributes, "tests")
        self.failed = count(attributes, "failures", "errors")

    def contradiction(self, cases: List[Case]) -> str:
        """Return which claim the cases inside contradict, "" without one."""
        failed = sum(case.ended == "not ok" for case in cases)
        where = f"suite {self.name}" if self.name else "a suite"
        # Catch2 and doctest give the number of assertions (catch_reporter_junit.hpp; JUnitReporter of doctest.cpp).
        of_assertions = bool(cases) and all(case.of_assertions for case in cases)
        if self.tests > len(cases) and not of_assertions:
            return f"{where} claims {self.tests} tests and holds {len(cases)}"
        # A case may hold a failure of its test, and an error of its teardown.
        if self.failed > 0 and not failed:
            return f"{where} claims {self.failed} failed tests and holds none"
        return ""


def count(attributes: Dict[str, str], *names: str) -> int:
    """Return the sum of the attributes that are whole numbers; -1 without any."""
    found = [int(attributes[name]) for name in names if attributes.get(name, "").isdecimal()]
    return sum(found) if found else -1


class Reader:
    """The handlers of a parser of JUnit files."""

    def __init__(self) -> None:
        self.cases: List[Case] = []
        self.contradiction = ""
        self._case: Optional[Case] = None
        self._suites: List[Counts] = []

    def begin(self, tag: str, attributes: Dict[str, str]) -> None:
        name = tag.rpartition("}")[2]
        if name in ("testsuite", "testsuites"):
            self._suites.append(Counts(attributes, len(self.cases)))
        elif name == "testcase":
            owner = attributes.get("classname", "")
            self._case = Case(plain(".".join(filter(None, (owner, attributes.get("name", ""))))) or "a test")
            self.cases.append(self._case)
            self._case.of_assertions = attributes.get("status") == "run" and "result" not in attributes
            if attributes.get("status", "").lower() in ("notrun", "disabled"):
                self._case.ended = "skip"
        elif name in ("failure", "error"):
            message = plain(attributes.get("message", "").partition("\n")[0])
            if self._case:
                self._case.ended, self._case.message = "not ok", message
            else:
                self._contradict(f"the suite itself has an error: {message}")
        elif name == "skipped" and self._case and self._case.ended == "ok":
            self._case.ended = "skip"

    def end(self, tag: str) -> None:
        name = tag.rpartition("}")[2]
        if name == "testcase":
            self._case = None
        elif name in ("testsuite", "testsuites") and self._suites:
            suite = self._suites.pop()
            self._contradict(suite.contradiction(self.cases[suite.first :]))

    def _contradict(self, why: str) -> None:
        self.contradiction = self.contradiction or why


def parse(data: bytes) -> Tuple[List[Case], str]:
    """Return the test cases of a JUnit file, and why its suites did not pass although their cases did, "" if they did.

    Raises ExpatError or ValueError; a document type is refused.
    """

    def refuse(*_arguments: Any) -> None:
        raise ValueError("it has a document type, which is not read")

    reader, parser = Reader(), expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = reader.begin, reader.end
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(data, True)
    return reader.cases, reader.contradiction


def plain(text: str) -> str:
    """Return a text on one line, without control characters, and with each # escaped as TAP wants it."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\s]+", " ", text).strip()[:LONGEST_TEXT].replace("#", "\\#")


def write(line: str) -> None:
    """Write one line by one system call, so that lines of ranks do not mix."""
    data = f"{line}\n".encode(errors="replace")
    while data:
        data = data[os.write(1, data) :]
