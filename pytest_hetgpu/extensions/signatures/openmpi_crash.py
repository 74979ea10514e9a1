"""The signal handler of Open MPI: `*** Process received signal ***` and the backtrace after it.

opal/util/stacktrace.c prints every line after `[host:pid] `. opal/mca/backtrace/execinfo writes the prefix, the frame's
number and the frame in three steps. So parts of several ranks may share one line, and a line may continue in a later
one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Process, process_of
from pytest_hetgpu.extensions.signatures.engine.frames import Crash, address_of, signal_name
from pytest_hetgpu.model.lazy_regex import lazy

_START = "*** Process received signal ***"
_PREFIX = lazy(r"\[(?=[^\[\]\s:]*[A-Za-z])[^\[\]\s:]+:\d+\] ?")
_SIGNAL = lazy(r"^Signal: (?:[^()]{0,80}\((\d{1,3})\)|(\d{1,3})\s*$)")
_CODE = lazy(r"^Signal code: ([^\s()][^()]{0,80}?)\s*\(-?\d+\)")
_UNTOLD = ("undefined code", "<unknown si_code>")
_PLACE = lazy(r"^\[ *(\d{1,3})\] ?")
_MOST_CRASHES = 1000
_MOST_WAITING = 64
_MOST_LOOSE = 50_000
_MOST_FRAMES = 200
_REGION, _LONG_ADDRESS = 6, 14
_CLEAR, _CLEARLY = 5, 3
_LONGEST = 4096


class _CrashReport:
    """One report as it comes in: frames by their numbers, and those whose number got lost in their order."""

    def __init__(self, process: Process, line: LogLine) -> None:
        self.crash = Crash(process, line)
        self.frames: dict[int, str] = {}
        self.loose: list[str] = []

    def put(self, place: int | None, text: str) -> None:
        """Take a frame."""
        if place is None or place in self.frames:
            self.loose.append(text)
        elif len(self.frames) < _MOST_FRAMES:
            self.frames[place] = text

    def build_match(self) -> FailureMatch:
        """Return the crash; frames without a number fill the gaps in its numbers."""
        missing = (place for place in range(_MOST_FRAMES) if place not in self.frames)
        frames = {**self.frames, **dict(zip(missing, self.loose, strict=False))}
        for place in sorted(frames):
            self.crash.add(frames[place])
        return self.crash.build_match()


class _Claim(NamedTuple):
    """A report that waits for its next frame, with the frame's number if it was read."""

    report: _CrashReport
    place: int | None


class _Loose(NamedTuple):
    """A frame that may be of the process whose prefix is before it, or of one that waits for its frame."""

    text: str
    claims: tuple[_Claim, ...]
    vote: int


class OpenMpiCrash(LogParser):
    """One crash for each report; lines belong together by the process in their prefix."""

    triggers = (_START.encode(), b"] Signal: ", b"] Signal code: ", b")[0x")
    context = 60

    def __init__(self) -> None:
        self._reports: list[_CrashReport] = []
        self._latest: dict[Process, _CrashReport] = {}
        self._waiting: list[_Claim] = []
        self._loose: list[_Loose] = []
        self._cut: tuple[_Claim, str] | None = None
        self._votes: defaultdict[str, Counter[_CrashReport]] = defaultdict(Counter)

    def feed(self, line: LogLine) -> None:
        for process, text in _pieces(line.text[:_LONGEST]):
            if process is None:
                self._rest(text)
            elif _START in text:
                self._start(process, line)
            elif process not in self._latest and _SIGNAL.search(text):
                # A log that begins within a report.
                self._start(process, line)
                if process in self._latest:
                    self._add_frames(self._latest[process], text, line)
            elif process in self._latest:
                self._add_frames(self._latest[process], text, line)

    def _start(self, process: Process, line: LogLine) -> None:
        if len(self._reports) < _MOST_CRASHES:
            self._latest[process] = _CrashReport(process, line)
            self._reports.append(self._latest[process])

    def _add_frames(self, report: _CrashReport, text: str, line: LogLine) -> None:
        self._waiting = [claim for claim in self._waiting if claim.report is not report]
        placed = _PLACE.match(text)
        claim = _Claim(report, int(placed[1]) if placed else None)
        rest = text[placed.end() :] if placed else text
        if named := _SIGNAL.search(text):
            if report.crash.signal is None:
                report.crash.signal = signal_name(int(named[1] or named[2]))
                report.crash.quote(line)
        elif code := _CODE.search(text):
            said = code[1].lower()
            report.crash.detail = None if said in _UNTOLD else said
        elif not rest.strip():
            self._waiting += [claim] if len(self._waiting) < _MOST_WAITING else []
        elif address_of(rest):
            self._frame(rest, claim)
        elif placed:
            self._cut = (claim, rest)

    def _rest(self, text: str) -> None:
        """Take text without a prefix: the end of a frame that was cut, or a frame that a report waits for."""
        if not address_of(text):
            return
        if self._cut:
            claim, begun = self._cut
            self._cut = None
            claim.report.put(claim.place, begun + text)
        elif self._reports:
            placed = _PLACE.match(text)
            self._frame(text[placed.end() :] if placed else text)

    def _frame(self, text: str, *own: _Claim) -> None:
        """Store a frame until all are known: each votes for the report that its region belongs to."""
        if len(self._loose) >= _MOST_LOOSE:
            return
        clear = own and own[0].place is not None and not self._waiting
        loose = _Loose(text, (*own, *self._waiting), _CLEAR if clear else 1)
        self._loose.append(loose)
        if loose.claims:
            self._votes[_region(text)][loose.claims[0].report] += loose.vote

    def finish(self) -> Sequence[FailureMatch]:
        for loose in self._loose:
            if claim := self._meant(loose):
                claim.report.put(claim.place, loose.text)
        self._loose.clear()
        matches = (report.build_match() for report in self._reports)
        return tuple(match for match in matches if match.signature.signal or match.signature.library)

    def _meant(self, loose: _Loose) -> _Claim | None:
        """Return the first claim, which has the frame's prefix, unless the region is clearly another report's."""
        first = loose.claims[0] if loose.claims else None
        region = _region(loose.text)
        votes = self._votes[region] if region else None
        if not votes:
            return first
        report, most = votes.most_common(1)[0]
        if first and (most <= votes[first.report] or most <= _CLEARLY * (votes[first.report] - loose.vote)):
            return first
        return next((claim for claim in loose.claims if claim.report is report), _Claim(report, None))


def _region(text: str) -> str:
    """Return an address region, `0x7f09`: a process's code is placed at random, with its libraries side by side."""
    address = address_of(text)
    return address[:_REGION] if len(address) == _LONG_ADDRESS else ""


def _pieces(text: str) -> Iterator[tuple[Process | None, str]]:
    """Split a line before each prefix, with the process it names; text before the first prefix comes first."""
    marks = list(_PREFIX.finditer(text))
    if not marks or marks[0].start():
        yield None, text[: marks[0].start()] if marks else text
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    for mark, end in zip(marks, ends, strict=False):
        yield process_of(mark[0]), text[mark.end() : end]
