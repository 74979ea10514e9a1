"""The reports of UCX on a dying process: signals, assertions, fatal errors, and the backtrace after them.

All of them come from `ucs_log_fatal_error`, which puts `[host:pid:thread:tid]` before its text (src/ucs/debug/log.c).
It is called by src/ucs/debug/debug.c (`Caught signal`, `Process frozen`) and src/ucs/debug/assert.c (`file:line text`).
That text is an assertion's, `Fatal: `, `Bug: `, or any message of a level that UCX_LOG_LEVEL_TRIGGER makes fatal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Process
from pytest_hetgpu.extensions.signatures.engine.frames import Crash, signal_name
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST = 1000
_LONGEST = 4096
_LONGEST_DETAIL = 300

# Thread and tid are missing if a launcher cut them off, or in reports of other tools that copy the form. UCX 1.13 and
# later give threads names.
_WHO = r"\[(?P<host>[^\[\]\s:]+):(?P<pid>\d+)\s*:[\w.-]+(?::(?P<thread>\d+))?\]\s+"
_CAUGHT = lazy(
    _WHO + r"Caught signal (?P<number>\d{1,3}) \([^:()]{1,60}"
    r"(?:: (?P<detail>(?:[^()]|\(\d\)){0,120}?)(?: at address (?:\(nil\)|0x[0-9a-f]+))?)?\)"
)
_FATAL = lazy(
    _WHO + r"[\w.+-]+\.\w{1,4}:\d+\s+(?P<detail>(?:Assertion [`'].*' failed|Fatal: |Bug: ).*"
    r"|process_vm_\w+\(.*\) returned -1: .*|.*\(synd 0x.*|.*completion.* with error.*)"
)
_EXPRESSION = lazy(r"^Assertion [`'](.*)' failed(?=:|$)")
_FROZEN = lazy(_WHO + r"Process frozen")
_BACKTRACE = lazy(r"==== backtrace (?:\(tid:\s*(\d+)\) )?====")
_FRAME = lazy(r"^\s*(\d{1,3})\s+(?=\S).*0x")
_END = lazy(r"^={33}\s*$")
# The innermost source file, if it was readable (ucs_debug_show_innermost_source_file)
_SOURCE = lazy(r"^/\S{1,300}\.\w{1,4}: \[ (?P<function>\w{1,200})\(\) \]\s*$")

# Reasons in a fatal text, beyond that UCX gave up.
_REASONS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (
        lazy(r"\bNot enough memory|\bOut of memory|Cannot allocate memory|[Ff]ailed to allocate"),
        Kind.OUT_OF_MEMORY,
    ),
    (
        lazy(r"retry count exceeded|Connection re(?:set|fused)|[Ee]ndpoint timeout|unhandled timeout|timed out"),
        Kind.NETWORK_FAILURE,
    ),
    (lazy(r"Destination is unreachable"), Kind.TRANSPORT_UNAVAILABLE),
)


class Ucx(LogParser):
    """A backtrace belongs to the thread that its header names; those of several processes may be mixed."""

    triggers = (
        b"Caught signal ",
        b"==== backtrace ",
        b") [0x",
        b"Assertion `",
        b" Fatal: ",
        b" Bug: ",
        b" (synd 0x",
        b" process_vm_",
        b" with error on ",
        b"] Process frozen",
        b"() ]",
    )
    context = 60

    def __init__(self) -> None:
        self._crashes: list[Crash] = []
        self._unprinted: dict[str, list[Crash]] = {}
        self._growing: list[Crash] = []
        self._sources: dict[int, str] = {}
        self._thread: str | None = None

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        if self._growing and (place := _FRAME.match(text)):
            self._frame(int(place[1]), text, line)
        elif found := _CAUGHT.search(text):
            self._crash(found, line, signal_name(int(found["number"])))
        elif ":" in text and (found := _FATAL.search(text)):
            self._crash(found, line, "SIGABRT")
        elif header := _BACKTRACE.search(text):
            self._begin(header[1])
        elif self._crashes and (source := _SOURCE.match(text)):
            self._sources.setdefault(len(self._crashes) - 1, source["function"])
        elif found := _FROZEN.search(text):
            self._frozen(_process(found), line)
        elif len(self._growing) == 1 and _END.match(text):
            self._growing.clear()

    def _crash(self, found: re.Match[str], line: LogLine, signal: str) -> None:
        process = _process(found)
        if len(self._crashes) >= _MOST or (found["thread"] == self._thread and self._continues(process, line)):
            return
        self._thread = found["thread"]
        crash = Crash(process, line)
        said = (found["detail"] or "").strip()
        crash.signal, crash.detail = signal, _EXPRESSION.sub(r"\1", said)[:_LONGEST_DETAIL] or None
        if signal == "SIGABRT":
            reasons = ((words.search(found["detail"]), kind) for words, kind in _REASONS)
            if reason := next(((match[0], kind) for match, kind in reasons if match), None):
                crash.reason, crash.kind = f"{'-'.join(reason[0].lower().split())}@ucx", reason[1]
        self._crashes.append(crash)
        self._unprinted.setdefault(found["thread"] or str(process[1]), []).append(crash)

    def _continues(self, process: Process, line: LogLine) -> bool:
        """Return whether a line continues a message of several lines: each has the same prefix."""
        last = self._crashes[-1] if self._crashes else None
        return bool(
            last and process and last.process == process and last.number == line.number - 1 and last.places == 0
        )

    def _begin(self, thread: str | None) -> None:
        """Take a header, which names the thread; before UCX 1.6 it did not, and the latest report is meant."""
        waiting = self._unprinted.get(thread or "") or next(
            (crashes for crashes in self._unprinted.values() if crashes and thread is None), None
        )
        self._growing += [waiting.pop(0)] if waiting else []

    def _frame(self, place: int, text: str, line: LogLine) -> None:
        """Add the frame to the backtrace with that next number; among several, to the one with similar addresses."""
        fitting = [crash for crash in self._growing if crash.places == place and _one_writer(crash, line)]
        if fitting:
            crash = max(reversed(fitting), key=lambda one: one.near(text))
            crash.places += 1
            crash.add(text)

    def _frozen(self, process: Process, line: LogLine) -> None:
        """Record a hang by UCX_HANDLE_ERRORS=freeze: the process stays as it is, and so does the job."""
        crash = next((one for one in reversed(self._crashes) if one.process == process), None)
        if crash is None and len(self._crashes) < _MOST:
            crash = Crash(process, line)
            self._crashes.append(crash)
        if crash and crash.kind is not Kind.HANG:
            crash.kind = Kind.HANG
            crash.quote(line)

    def finish(self) -> Sequence[FailureMatch]:
        for at, function in self._sources.items():
            if not self._crashes[at].places:
                self._crashes[at].add(f" 0 0x{0:016x} {function}()  ???:0")
        return tuple(crash.build_match() for crash in self._crashes)


def _process(found: re.Match[str]) -> Process:
    return found["host"].split(".")[0], int(found["pid"])


def _one_writer(crash: Crash, line: LogLine) -> bool:
    """Return whether a frame can belong to a report, judging by the prefixes of both."""
    same_rank = None in (crash.rank, line.rank) or crash.rank == line.rank
    return same_rank and (None in (crash.host, line.host) or crash.host == line.host)
