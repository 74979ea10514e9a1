"""Open MPI's own signal handler: `*** Process received signal ***` and the backtrace after it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_hetgpu.signatures._frames import Crash, signal_name
from pytest_hetgpu.signatures.base import Dialect, Process, Reading, process_of, quoted

_START = "*** Process received signal ***"
_SIGNAL = re.compile(r"\] Signal: .*\((\d+)\)\s*$")
_CODE = re.compile(r"\] Signal code: (\S[^()]*?)\s*\(-?\d+\)\s*$")
_MOST_CRASHES = 1000


class OpenMpiCrash(Dialect):
    """One crash for each report; lines belong together by the process in their prefix (opal/util/stacktrace.c)."""

    triggers = (_START.encode(), b"] Signal: ", b"] Signal code: ", b")[0x")
    context = 60

    def __init__(self) -> None:
        self._crashes: list[Crash] = []
        self._latest: dict[Process, Crash] = {}

    def feed(self, line: str, number: int) -> None:
        process = process_of(line)
        if process is None:
            return
        if _START in line:
            self._start(process, line, number)
        elif process in self._latest:
            self._tell(self._latest[process], line, number)

    def _start(self, process: Process, line: str, number: int) -> None:
        if len(self._crashes) < _MOST_CRASHES:
            self._latest[process] = Crash(process, line, number)
            self._crashes.append(self._latest[process])

    @staticmethod
    def _tell(crash: Crash, line: str, number: int) -> None:
        named = _SIGNAL.search(line)
        code = _CODE.search(line)
        if named and crash.signal is None:
            crash.signal = signal_name(int(named[1]))
            crash.line, crash.number = quoted(line), number
        elif code:
            crash.detail = code[1].lower()
        else:
            crash.add(line)

    def finish(self) -> Sequence[Reading]:
        return tuple(crash.reading() for crash in self._crashes)
