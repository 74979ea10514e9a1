"""The signal handler of PSM, PSM2 and PSM3, which comes with libfabric's provider into every program of Intel MPI.

`NAME:PID terminated with signal N at PC=.. SP=...  Backtrace:` and the frames of backtrace_symbols_fd, one write each:
prov/psm3/psm3/utils/utils_debug.c of libfabric, which has `pid` before the number, opa/opa_debug.c of opa-psm2,
ipath/ipath_debug.c of infinipath-psm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Process
from pytest_hetgpu.extensions.signatures.engine.frames import Crash, address_of, signal_name
from pytest_hetgpu.model.lazy_regex import lazy

_LONGEST = 4096
_MOST = 1000
_MOST_FRAMES = 128
_MOST_WAITING = 64
_HANDLING = 6

_TERMINATED = lazy(
    r"(?P<program>[^\s:][^:]{0,59}):(?:pid)?(?P<pid>\d{1,10}) terminated with signal (?P<signal>\d{1,3})"
    r"(?: at PC=(?P<pc>[0-9a-f]{1,16}) SP=[0-9a-f]{1,16})?\.\s{1,3}Backtrace:"
)
_RANK = lazy(r"\[(\d{1,7})\] (?=\S)")
_OUTERMOST = lazy(r"\((?:_start|__?clone\d?)\+0x")


class _PsmReport:
    """One process's report; `open` until its outermost frame was read."""

    def __init__(self, found: re.Match[str], line: LogLine) -> None:
        self.line = line
        self.process: Process = (line.host or "", int(found["pid"]))
        self.signal = signal_name(int(found["signal"]))
        self.pc = f"0x{found['pc'].lstrip('0')}" if found["pc"] else ""
        self.frames: list[str] = []
        self.open = True

    def add(self, text: str) -> None:
        """Take a frame."""
        self.frames.append(text)
        self.open = len(self.frames) < _MOST_FRAMES and not _OUTERMOST.search(text)

    def near(self, text: str) -> int:
        """Return how many leading digits the frame's address shares with those of this process."""
        address = address_of(text)
        known = (self.pc, *map(address_of, self.frames[-_HANDLING:]))
        return max(_alike(one, address) for one in known)

    def build_match(self) -> FailureMatch:
        """Return the crash; frames above the failed instruction are the handler's."""
        crash = Crash(None, self.line)
        crash.signal = self.signal
        places = [place for place, text in enumerate(self.frames[:_HANDLING]) if address_of(text) == self.pc]
        for text in self.frames[places[0] if places else 0 :]:
            crash.add(text)
        return replace(crash.build_match(), process=self.process)


class Psm(LogParser):
    """Parser of crash reports; if several are written at once, a frame's address assigns it."""

    triggers = (b" terminated with signal ",)
    context = 150

    def __init__(self) -> None:
        self._reports: list[_PsmReport] = []

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        if found := _TERMINATED.search(text):
            if len(self._reports) < _MOST:
                self._reports.append(_PsmReport(found, line))
        elif address_of(text):
            line = _ranked(line)
            waiting = [one for one in self._reports[-_MOST_WAITING:] if one.open and _same_writer(one.line, line)]
            if waiting:
                max(reversed(waiting), key=lambda one: one.near(text)).add(text)

    def finish(self) -> Sequence[FailureMatch]:
        return tuple(report.build_match() for report in self._reports)


def _ranked(line: LogLine) -> LogLine:
    """Return a line with the rank of Hydra's -prepend-rank, which before a frame might also be a frame's number."""
    found = _RANK.match(line.text) if line.rank is None else None
    return replace(line, rank=int(found[1])) if found else line


def _same_writer(head: LogLine, line: LogLine) -> bool:
    return (head.rank, head.host) == (line.rank, line.host)


def _alike(one: str, other: str) -> int:
    differs = (place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differs, min(len(one), len(other)))
