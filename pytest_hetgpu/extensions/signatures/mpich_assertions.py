"""Failed assertions of MPICH, and calls of MPI before its start or after its end.

`MPIR_Assert_fail` (src/util/mpir_assert.c) prints the condition, since 3.4 a backtrace (`MPL_backtrace_show`), and
calls MPID_Abort, which exits: no signal. `MPIR_Errutil_is_initialized` and its like are in src/mpi/errhan/errutil.c.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_hetgpu.extensions.signatures._messages.mpich_reasons import mpi_name
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, slug, token
from pytest_hetgpu.extensions.signatures.engine.frames import Frame, entry_point, parse_frame
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_FAILED = "Assertion failed in file "
_OUTSIDE = "Attempting to use an MPI routine"
_INTERNAL = ": Internal error"
_WINDOW = 60
_MOST_FRAMES = 100
_MOST_READINGS = 200
_LONGEST_LINE = 2000

_ASSERTION = lazy(r"Assertion failed in file (?P<file>\S{1,300}) at line \d{1,6}: (?P<condition>.{1,300})")
_ROUTINE = lazy(r"Attempting to use an MPI routine(?: \((?P<entry>\w{1,99})\))? (?P<when>before|after)\b")
_ABORTED = lazy(r"Abort\((?P<code>-?\d{1,10})\)(?: on node (?P<node>\d{1,7}))?.{0,80}: Internal error\b")
_REPORTING = lazy(r"MPL_backtrace_show|MPIR_Assert_fail\w*|backtrace\w*")


@dataclass(slots=True)
class _Assertion:
    """A failed assertion, while its further output is parsed."""

    line: LogLine
    file: str
    condition: str
    frames: list[Frame] = field(default_factory=list)
    rank: int | None = None


class MpichAssertions(LogParser):
    """`Assertion failed in file F at line N: CONDITION`, its backtrace, and the rank that ended for it."""

    triggers = (_FAILED.encode(), _OUTSIDE.encode(), _INTERNAL.encode())
    context = _WINDOW

    def __init__(self) -> None:
        self._failed: list[_Assertion] = []
        self._matches: list[FailureMatch] = []

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST_LINE]
        if found := _ASSERTION.search(text):
            if len(self._failed) < _MOST_READINGS:
                self._failed.append(_Assertion(line, found["file"], found["condition"].strip(), rank=line.rank))
        elif found := _ROUTINE.search(text):
            entry = mpi_name(found["entry"]) if found["entry"] else None
            when = "not-initialized" if found["when"] == "before" else "finalized"
            self._add(line, f"{when}@{entry or 'MPI'}", Priority.CAUSE, entry=entry)
        elif found := _ABORTED.search(text):
            self._aborted(found, line)
        elif self._failed and (frame := parse_frame(text)) and len(self._failed[-1].frames) < _MOST_FRAMES:
            self._failed[-1].frames.append(frame)

    def _aborted(self, found: re.Match[str], line: LogLine) -> None:
        """Take the end of a rank whose assertion is above, or that gave no reason."""
        rank = int(found["node"]) if found["node"] else line.rank
        open_ones = [failed for failed in self._failed if failed.rank is None]
        if open_ones:
            open_ones[0].rank = rank
        elif not self._failed:
            self._add(line, "internal-error@MPID_Abort", Priority.UNSPECIFIC, rank=rank)

    def _add(
        self, line: LogLine, key: str, priority: Priority, *, entry: str | None = None, rank: int | None = None
    ) -> None:
        rank = line.rank if rank is None else rank
        signature = Signature(
            Kind.ERROR,
            key,
            line.quote,
            line.number,
            entry_point=entry,
            ranks=() if rank is None else (rank,),
            hosts=(line.host,) if line.host else (),
        )
        if len(self._matches) < _MOST_READINGS:
            self._matches.append(FailureMatch(signature, priority))

    def finish(self) -> Sequence[FailureMatch]:
        return tuple(self._matches) + tuple(map(_match, self._failed))


def _match(failed: _Assertion) -> FailureMatch:
    """Return an assertion as a match: its file is known, its function only from a backtrace with symbols."""
    named = [frame for frame in failed.frames if not (frame.function and _REPORTING.fullmatch(frame.function))]
    frame = named[0] if named else None
    file = failed.file.rpartition("/")[2]
    signature = Signature(
        Kind.ERROR,
        f"assertion@{token(file)}!{slug(failed.condition) or 'condition'}",
        failed.line.quote,
        failed.line.number,
        detail=failed.condition,
        library=frame.library if frame else None,
        function=frame.function if frame else None,
        entry_point=entry_point(failed.frames),
        ranks=() if failed.rank is None else (failed.rank,),
        hosts=(failed.line.host,) if failed.line.host else (),
    )
    return FailureMatch(signature)
