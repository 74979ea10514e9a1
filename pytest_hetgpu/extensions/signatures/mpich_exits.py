"""Exits of ranks as Hydra reports them, the launcher of MPICH and Intel MPI.

MPICH (src/pm/hydra/mpiexec/pmiserv_cb.c, `control_cb`) prints one banner per proxy, with the pid of the first process
that did not end by `exit`. Its EXIT CODE is then the status of wait(2): a signal in the low seven bits, and 128 for a
core file. Releases before 3.2 printed a banner for exit codes other than 0 as well, with that code. At the end, if no
proxy was lost, mpiexec.c names the signal again. It combines all statuses by OR, so that a crash (11) and the cleanup
of its neighbours (9) give 11, whichever process the banner shows.

Intel MPI prints one banner per rank that died of a signal, including those that it killed itself (9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, Process
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind

_BANNER = "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
_STRING = "TERMINATED WITH THE EXIT STRING"
_CTRL_C = "Sending Ctrl-C to processes as requested"
_WINDOW = 8
_MOST_BANNERS = 1000
_LONGEST_LINE = 1000

_PROCESS = lazy(r"=\s+(?:RANK (\d{1,7}) )?PID (\d{1,10}) RUNNING AT (\S{1,255})")
_CODE = lazy(r"=\s+EXIT (?:CODE|STATUS): (-?\d{1,10})\b")
_KILLED = lazy(r"=\s+KILLED BY SIGNAL: (\d{1,3})\b")
_SIGNAL = lazy(r"\(signal (\d{1,3})\)")

_HANGUP, _INTERRUPT, _KILL, _SEGV, _TERM = 1, 2, 9, 11, 15
_FROM_OUTSIDE = (_HANGUP, _INTERRUPT, _TERM)
# Signals that end a process and are no usual exit codes; with 128 they are shells' and core dumps' numbers for them.
_DEADLY = frozenset({4, 5, 6, 7, 8, _KILL, 10, _SEGV, 12, 13, 14, _TERM, 16, 24, 25, 30, 31})
_CORE = 128


@dataclass(slots=True)
class _ExitBanner:
    """One banner, or mpiexec's last words."""

    line: LogLine
    rank: int | None = None
    process: Process | None = None
    signal: int | None = None
    code: int | None = None


class MpichExits(LogParser):
    """Banners, and of several the one that is the cause."""

    triggers = (_BANNER.encode(), _STRING.encode(), _CTRL_C.encode())
    context = _WINDOW

    def __init__(self) -> None:
        self._ended: list[_ExitBanner] = []
        self._open: _ExitBanner | None = None
        self._said: _ExitBanner | None = None
        self._interrupted = False

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST_LINE]
        if _BANNER in text:
            self._close()
            self._open = _ExitBanner(line)
        elif _STRING in text:
            if self._said is None and (found := _SIGNAL.search(text)):
                self._said = _ExitBanner(line, signal=int(found[1]))
        elif _CTRL_C in text:
            self._interrupted = True
        elif self._open:
            self._detail(self._open, text, line)

    def _detail(self, ended: _ExitBanner, text: str, line: LogLine) -> None:
        if found := _PROCESS.search(text):
            ended.rank = int(found[1]) if found[1] else line.rank
            ended.process = (found[3].rpartition("@")[2].split(".")[0], int(found[2]))
        elif found := _KILLED.search(text):
            ended.signal, ended.line = int(found[1]), line
            self._close()
        elif found := _CODE.search(text):
            ended.code, ended.line = int(found[1]), line
            self._close()

    def _close(self) -> None:
        if self._open and len(self._ended) < _MOST_BANNERS:
            self._ended.append(self._open)
        self._open = None

    def _causes(self) -> list[_ExitBanner]:
        """Return the banners of causes: without those that only show the launcher's cleanup, unless all do."""
        self._close()
        said = self._said.signal if self._said else None
        for ended in self._ended:
            if ended.signal is None and ended.code is not None:
                ended.signal = _signal_in(ended.code, said, self._interrupted)
        if not self._ended:
            return [self._said] if self._said else []
        own = [ended for ended in self._ended if ended.signal != _KILL]
        if any(ended.signal not in _FROM_OUTSIDE for ended in own):
            own = [ended for ended in own if ended.signal not in _FROM_OUTSIDE]
        if not own and self._said and said == _SEGV:
            return [self._said]
        return own or self._ended

    def finish(self) -> Sequence[FailureMatch]:
        causes = self._causes()
        alone = not any(ended.signal == _KILL for ended in self._ended)
        return tuple(_match(ended, alone) for ended in causes)

    def exits(self) -> Sequence[RankExit]:
        causes = [ended for ended in self._causes() if ended.rank is not None]
        if len(causes) > 1 and all(ended.signal == _KILL for ended in causes):
            return ()
        return tuple(
            RankExit(ended.rank, signal=ended.signal, code=None if ended.signal else ended.code)
            for ended in causes
            if ended.rank is not None and (ended.signal or ended.code)
        )


def _signal_in(code: int, said: int | None, interrupted: bool) -> int | None:
    """Return the signal that an EXIT CODE means, None for an argument of `exit`."""
    low = code - _CORE if _CORE < code < 2 * _CORE else code
    if low == said or low in _DEADLY or (interrupted and low == _INTERRUPT):
        return low
    return None


def _match(ended: _ExitBanner, alone: bool) -> FailureMatch:
    """Return a rank's exit as a match.

    SIGTERM to all, without a rank killed for another, comes from outside the job.
    """
    found = Signature(
        Kind.ERROR,
        "ended@hydra",
        ended.line.quote,
        ended.line.number,
        ranks=() if ended.rank is None else (ended.rank,),
        hosts=(ended.process[0],) if ended.process else (),
    )
    priority = Priority.EXIT
    if ended.signal is not None:
        name = signal_name(ended.signal)
        outside = ended.signal in _FROM_OUTSIDE and alone
        kind = Kind.TIMEOUT if outside and ended.signal == _TERM else Kind.CRASH
        priority = Priority.CONSEQUENCE if outside else priority
        found = replace(found, kind=kind, key=name, signal=name)
    elif ended.code is not None:
        # Before 1.5 the raw status of a process that called exit.
        code = ended.code >> 8 if ended.code > 255 and not ended.code & 0x7F else ended.code
        found = replace(found, key=f"exit@{code}", detail=f"exit code {code}")
    return FailureMatch(found, priority, ended.process)
