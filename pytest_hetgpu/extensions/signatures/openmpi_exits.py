"""Exits of ranks in the reports of the Open MPI launchers: mpirun of 4.x, prterun of 5.x, and the text of MPI_Abort.

help-orterun.txt, help-prun.txt, help-state-base.txt, orte/runtime/orte_quit.c; MPI_Abort's is in help-mpi-api.txt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, Process
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind

_WINDOW = 6
_MOST_WINDOWS = 64
_MOST_READINGS = 10_000
_TRACEBACK = "Traceback (most recent call last)"
_FATAL = ("*** MPI_ERR_", "*** An error occurred in MPI_Init")
_FROM_OUTSIDE = ("SIGTERM", "SIGINT", "SIGHUP")
# Signals that a shell, srun or a container reports of its child as 128+N; other codes over 128 are programs' own.
_DEADLY = frozenset({4, 5, 6, 7, 8, 9, 11, 15})

# Help texts are filled to the width of a page, so a sentence may break anywhere: they are matched joined by blanks.
_SIGNALLED = lazy(r"noticed that process rank (\d+) with PID (\d+) on node (\S+) exited on signal (\d+)")
_COUNTED = lazy(r"Process name: \[(?:\[\d+,\d+\],|[^\]@]*@\d+,)(\d+)\] Exit code: (\d+)")
_ABORTED = lazy(
    r"MPI_ABORT was invoked on rank (\d+) in communicator "
    r".*?(?:Proc: \[\[\d+,\d+\],(\d+)\] Errorcode: |with errorcode )(-?\d+)"
)
_LEFT = lazy(r"has exited due to process rank (\d+) with PID (\d+) on node (\S+) (calling|exiting)")

# Texts about a job without a rank: key and priority.
_NO_FINALIZE = lazy(r'exited due to a process exiting without calling "finalize"')
_NO_INFO = lazy(r"noticed that the job aborted(?: by signal)?, but has no info")
_RETURNED = lazy(r"\bjob .*terminated normally, but \d+ process\S* returned")
_KILLED = lazy(r"\b\d+ total process(?:es)? (?:killed|aborted)\b")
_UNNAMED = {
    _NO_FINALIZE: ("no-finalize@mpirun", Priority.EXIT),
    _NO_INFO: ("aborted@mpirun", Priority.UNSPECIFIC),
    _RETURNED: ("exit@mpirun", Priority.UNSPECIFIC),
    _KILLED: ("killed@mpirun", Priority.CONSEQUENCE),
}
_BEGINNINGS = {
    "noticed that process rank": (_SIGNALLED,),
    "Process name: [": (_COUNTED,),
    "MPI_ABORT was invoked on rank": (_ABORTED,),
    "has exited due to ": (_LEFT, _NO_FINALIZE),
    "noticed that the job aborted": (_NO_INFO,),
    "terminated normally, but ": (_RETURNED,),
    " total process": (_KILLED,),
}


@dataclass(slots=True)
class _Window:
    """Some lines from one that begins a text; the texts of ranks may stand in each other."""

    first: LogLine
    begun: str
    text: str = ""
    left: int = _WINDOW


class OpenMpiExits(LogParser):
    """Parser of a job's final report: matches and exits of ranks."""

    triggers = (*(word.encode() for word in _BEGINNINGS), _TRACEBACK.encode(), *(word.encode() for word in _FATAL))
    context = _WINDOW

    def __init__(self) -> None:
        self._matches: list[FailureMatch] = []
        self._exits: dict[int, RankExit] = {}
        self._windows: list[_Window] = []
        self._unnamed: dict[str, FailureMatch] = {}
        self._raised = False
        self._erred = False

    def feed(self, line: LogLine) -> None:
        self._raised |= _TRACEBACK in line.text
        self._erred |= any(word in line.text for word in _FATAL)
        begun = next((word for word in _BEGINNINGS if word in line.text), None)
        if begun:
            self._windows = [*self._windows[-_MOST_WINDOWS:], _Window(line, begun)]
        for window in list(self._windows):
            if window.first.rank is None or line.rank in (None, window.first.rank):
                self._more(window, line)

    def _more(self, window: _Window, line: LogLine) -> None:
        window.left -= 1
        window.text = f"{window.text} {' '.join(line.text[:1000].split())}".strip()
        if self._take_report(window, line) or not window.left:
            self._windows.remove(window)

    def _take_report(self, window: _Window, line: LogLine) -> bool:
        """Return whether the window's text is complete, after storing its content."""
        told = {
            _SIGNALLED: self._signalled,
            _COUNTED: self._counted,
            _ABORTED: self._aborted,
            _LEFT: self._left_early,
        }
        for pattern in _BEGINNINGS[window.begun]:
            found = pattern.search(window.text)
            if found and pattern in told:
                told[pattern](found, line, window.first)
            elif found:
                self._take_job_text(window.first, *_UNNAMED[pattern])
            if found:
                return True
        return False

    def _take_job_text(self, line: LogLine, key: str, priority: Priority) -> None:
        signature = Signature(Kind.ERROR, key, line.quote, line.number, detail=line.text.strip()[:200])
        self._unnamed.setdefault(key, FailureMatch(signature, priority))

    def _signalled(self, found: re.Match[str], line: LogLine, first: LogLine) -> None:
        name = signal_name(int(found[4]))
        line = line if "signal" in line.text else first
        self._add(
            RankExit(int(found[1]), signal=int(found[4])),
            _process(found),
            Signature(Kind.CRASH, name, line.quote, line.number, signal=name),
        )

    def _counted(self, found: re.Match[str], line: LogLine, _first: LogLine) -> None:
        rank, code = int(found[1]), int(found[2])
        signature = Signature(Kind.ERROR, f"exit@{code}", line.quote, line.number, detail=f"exit code {code}")
        if code - 128 in _DEADLY:
            name = signal_name(code - 128)
            signature = replace(signature, kind=Kind.CRASH, key=name, signal=name)
        self._add(RankExit(rank, code=code), None, signature)

    def _aborted(self, found: re.Match[str], _line: LogLine, first: LogLine) -> None:
        called = RankExit(int(found[2] or found[1]), code=int(found[3]), aborted=True)
        detail = f"MPI_Abort, error code {found[3]}"
        self._add(
            called, None, Signature(Kind.ERROR, f"MPI_Abort@{found[3]}", first.quote, first.number, detail=detail)
        )

    def _left_early(self, found: re.Match[str], _line: LogLine, first: LogLine) -> None:
        rank, aborted = int(found[1]), found[4] == "calling"
        self._exits.setdefault(rank, RankExit(rank, aborted=aborted))
        if aborted:
            # A process that noticed a death is named, too, as if it had called abort.
            self._take_job_text(first, "abort@mpirun", Priority.UNSPECIFIC if int(found[2]) else Priority.CONSEQUENCE)
            return
        detail = "exited without MPI_Finalize"
        self._add(
            self._exits[rank],
            _process(found),
            Signature(Kind.ERROR, "no-finalize@mpirun", first.quote, first.number, detail=detail),
        )

    def _add(self, ended: RankExit, process: Process | None, signature: Signature) -> None:
        before = self._exits.get(ended.rank, RankExit(ended.rank))
        if len(self._matches) >= _MOST_READINGS:
            return
        if before.signal is None and before.code is None:
            self._exits[ended.rank] = ended
        priority = Priority.CONSEQUENCE if signature.signal in _FROM_OUTSIDE else Priority.EXIT
        hosts = (process[0],) if process else ()
        self._matches.append(FailureMatch(replace(signature, ranks=(ended.rank,), hosts=hosts), priority, process))

    def finish(self) -> Sequence[FailureMatch]:
        """Return matches about ranks; those about the whole job only without any about ranks."""
        if not self._matches:
            return tuple(self._unnamed.values())
        return tuple(self._secondary(match) for match in self._matches)

    def _secondary(self, match: FailureMatch) -> FailureMatch:
        """Lower the priority of an exit if a match before it has the reason."""
        # `python -m mpi4py` calls MPI_Abort with 1 for an exception; its traceback holds more (mpi4py/run.py).
        if self._raised and match.signature.key == "MPI_Abort@1":
            return replace(match, priority=Priority.CONSEQUENCE)
        # Open MPI ends a rank that met a fatal MPI error with the error's number.
        if self._erred and match.signature.key.startswith("exit@"):
            return replace(match, priority=Priority.UNSPECIFIC)
        return match

    def exits(self) -> Sequence[RankExit]:
        return tuple(self._exits.values())


def _process(found: re.Match[str]) -> Process | None:
    """Return the process that the launcher names; some releases print PID 0."""
    return (found[3].split(".")[0], int(found[2])) if int(found[2]) else None
