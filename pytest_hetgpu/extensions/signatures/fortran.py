"""Fortran's run-time libraries: a program that ends by a signal, an error, or `error stop`.

gfortran: libgfortran/runtime/compile_options.c (`Program received signal`), error.c, stop.c, and backtrace.c (`#1 0x...
in name`, with the source in the next line). Intel: `forrtl: severe (174): SIGSEGV, ...` and a table of image, address,
routine, line and source. The number of a signal is that of the message, from the compiler manual's list of run-time
errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, slug
from pytest_hetgpu.extensions.signatures.engine.demangle import function_name, program_name
from pytest_hetgpu.extensions.signatures.engine.frames import Crash, Frame, is_system
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST = 1000
_MOST_FRAMES = 200
_LONGEST = 1000

_RECEIVED = lazy(r"Program received signal (?P<signal>SIG[A-Z]{2,8}): (?P<detail>[^.]{0,120})")
_FRAME = lazy(r"^#(?P<place>\d{1,3})\s+0x[0-9a-fA-F]+(?: in (?P<name>\S.{0,500}?))?\s*$")

_ERROR = lazy(r"^(?:Fortran runtime error: (?P<detail>\S.{0,500})|(?:.{0,60}: )?(?P<stop>ERROR STOP\b.{0,300}))")
_SEVERE = lazy(r"forrtl: (?:severe|error) \((?P<number>\d{1,3})\): (?P<detail>\S.{0,500})")
_ROW = lazy(r"^(?P<image>\S{1,60})\s+[0-9A-F]{8,16}\s+(?P<name>\S{1,200})\s+(?:Unknown|\d+)\s+\S")
_SIGNALS = {
    "65": "SIGFPE",
    "70": "SIGFPE",
    "71": "SIGFPE",
    "72": "SIGFPE",
    "73": "SIGFPE",
    "74": "SIGFPE",
    "75": "SIGFPE",
    "76": "SIGABRT",
    "168": "SIGILL",
    "174": "SIGSEGV",
    "179": "SIGBUS",
}
_NO_MEMORY = "41"
_LONGEST_DETAIL = 200
_LONGEST_WORDS = 120
_UNKNOWN = ("Unknown", "???")
_HANDLERS = ("for__", "_gfortrani_", "_gfortran_", "backtrace_handler")


class _FortranCrash(Crash):
    """An error for which the run-time library ended a program; its words are the key, without the frames."""

    def __init__(self, line: LogLine, words: str) -> None:
        super().__init__(None, line)
        self.kind = Kind.ERROR
        self.detail = words[:_LONGEST_DETAIL]

    def build_match(self) -> FailureMatch:
        match = super().build_match()
        key = f"{slug(self.detail or '') or 'error'}@fortran"
        return replace(match, signature=replace(match.signature, key=key))


class Fortran(LogParser):
    """One report for each end; frames go to the latest report of the same writer."""

    triggers = (
        b"Program received signal SIG",
        b"Fortran runtime error: ",
        b"ERROR STOP",
        b"forrtl: severe (",
        b"forrtl: error (",
    )
    context = 60

    def __init__(self) -> None:
        self._crashes: list[Crash] = []
        self._latest: dict[tuple[int | None, str | None], Crash] = {}

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        writer = (line.rank, line.host)
        if found := _RECEIVED.search(text):
            self._start(_died(line, found["signal"], found["detail"]), writer)
        elif found := _ERROR.match(text):
            self._start(_FortranCrash(line, (found["detail"] or found["stop"]).strip()), writer)
        elif found := _SEVERE.search(text):
            self._latest.pop(writer, None)
            if signal := _SIGNALS.get(found["number"]):
                self._start(_died(line, signal, found["detail"]), writer)
            elif found["number"] != _NO_MEMORY:
                self._start(_FortranCrash(line, found["detail"].strip()), writer)
        elif (crash := self._latest.get(writer)) and (found := _FRAME.match(text) or _ROW.match(text)):
            self._frame(crash, found)

    def _start(self, crash: Crash, writer: tuple[int | None, str | None]) -> None:
        if len(self._crashes) < _MOST:
            self._latest[writer] = crash
            self._crashes.append(crash)

    @staticmethod
    def _frame(crash: Crash, found: re.Match[str]) -> None:
        """Take a frame; one without a name, or of the handler itself, only gives its image."""
        said = found.groupdict()
        name, image = said.get("name") or "", program_name(said.get("image") or "")
        if is_system(f"{image.partition('-')[0]}.so"):
            return  # Intel's table cuts names: libpthread-2.17.s
        known = name not in (*_UNKNOWN, "") and not name.startswith(_HANDLERS)
        if (known or image) and not name.startswith(_HANDLERS) and len(crash.frames) < _MOST_FRAMES:
            crash.frames.append(Frame(image, function_name(name) if known else None))

    def finish(self) -> Sequence[FailureMatch]:
        return tuple(crash.build_match() for crash in self._crashes)


def _died(line: LogLine, signal: str, detail: str) -> Crash:
    crash = Crash(None, line)
    crash.signal, crash.detail = signal, detail.strip()[:_LONGEST_WORDS].lower()
    return crash
