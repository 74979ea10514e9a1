"""Prints the results in a JUnit file as lines of the Test Anything Protocol.

The file is read on the node of its rank, so that nothing needs to be copied. Needs Python 3.8 only.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any, Dict, List, Optional
from xml.parsers import expat

LONGEST_FILE = 64 << 20
LONGEST_TEXT = 200


class Case:
    """One test case: its name, and how it ended: `ok`, `not ok` or `skip`, with the first line of a message."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = "ok"
        self.message = ""


def remove(file: str) -> None:
    """Remove a plain file, if it exists."""
    try:
        if stat.S_ISREG(os.lstat(file).st_mode):
            Path(file).unlink()
    except OSError:
        pass  # the program reports a place that it cannot write to


def print_results(file: str) -> None:
    """Print a line for each test case; `Bail out!` with the reason if the file cannot be read."""
    try:
        cases = parse(read(file))
    except (OSError, ValueError, LookupError, expat.ExpatError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        write(f"Bail out! {plain(file)}: {plain(reason or '')}")
        return
    for number, case in enumerate(cases, 1):
        skip = " # SKIP" if case.ended == "skip" else ""
        write(f"{'not ok' if case.ended == 'not ok' else 'ok'} {number} - {case.name}{skip}")
        if case.message:
            write(f"# {case.message}")
    write(f"1..{len(cases)}")


def read(file: str) -> bytes:
    """Return the contents of a plain file. Raises ValueError for another one, or if it is too large."""
    with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no plain file")
        if found.st_size > LONGEST_FILE:
            raise ValueError(f"it has more than {LONGEST_FILE >> 20} MiB")
        return opened.read(LONGEST_FILE)


def parse(data: bytes) -> List[Case]:
    """Return the test cases of a JUnit file. Raises ExpatError or ValueError; a document type is refused."""
    cases: List[Case] = []
    inside: List[Optional[Case]] = [None]

    def begin(tag: str, attributes: Dict[str, str]) -> None:
        name = tag.rpartition("}")[2]
        case = inside[0]
        if name == "testcase":
            owner = attributes.get("classname", "")
            inside[0] = Case(plain(".".join(filter(None, (owner, attributes.get("name", ""))))) or "a test")
            cases.append(inside[0])
        elif case and name in ("failure", "error"):
            case.ended, case.message = "not ok", plain(attributes.get("message", "").partition("\n")[0])
        elif case and name == "skipped" and case.ended == "ok":
            case.ended = "skip"

    def end(tag: str) -> None:
        if tag.rpartition("}")[2] == "testcase":
            inside[0] = None

    def refuse(*_arguments: Any) -> None:
        raise ValueError("it has a document type, which is not read")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(data, True)
    return cases


def plain(text: str) -> str:
    """Return a text on one line, without control characters, and with each # escaped as TAP wants it."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\s]+", " ", text).strip()[:LONGEST_TEXT].replace("#", "\\#")


def write(line: str) -> None:
    """Write one line by one system call, so that lines of ranks do not mix."""
    data = f"{line}\n".encode(errors="replace")
    while data:
        data = data[os.write(1, data) :]
