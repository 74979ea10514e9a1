"""Exits of workers as torchrun reports them: torch/distributed/elastic/ of PyTorch 1.9 to 2.13.

The table of `ChildFailedError` (multiprocessing/errors/__init__.py), the agent's line for the first failure
(multiprocessing/api.py), and its message when it is stopped itself (agent/server/api.py). Agents always raise in the
end; their tracebacks name no cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind

_MOST = 1000
_LONGEST = 4096
_FROM_OUTSIDE = ("SIGTERM", "SIGINT", "SIGHUP")
_STOPPED = "death signal, shutting down workers"
_USAGE = "torchrun: error: "
_TRACEBACK, _AGENTS = "Traceback (most recent call last)", "ChildFailedError"

# PyTorch 1.9 has no blanks before its colons, and `msg` for `traceback`.
_FIELD = lazy(r"^\s*(?P<name>host|rank|exitcode|traceback|msg)\s*: (?P<value>.*)$")
_ROOT = lazy(r"^Root Cause(?: \(first observed failure\))?:\s*$")
_EXIT = lazy(r"^(?P<code>-?\d+) +\(pid: (?P<pid>\d+)\)")
_FAILED = lazy(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)")
_RANK = lazy(r"^(\d+) ")
_DEATH = lazy(r"Received (?P<signal>\d{1,3}) death signal, shutting down workers")


@dataclass(slots=True)
class _Worker:
    """One worker's end: from a table, or from the agent's line before it."""

    code: int
    pid: int
    line: LogLine
    root: bool
    rank: int | None = None
    host: str | None = None
    tabled: bool = True

    @property
    def signal(self) -> str | None:
        return signal_name(-self.code) if self.code < 0 else None


class Torchrun(LogParser):
    """The root cause of every table, the further failures in it, and attempts that were restarted."""

    triggers = tuple(
        word.encode()
        for word in (
            "Root Cause",
            "Other Failures:",
            "  rank: ",
            "  exitcode: ",
            '  msg: "Signal ',
            "  host      : ",
            "  rank      : ",
            "  exitcode  : ",
            "  traceback : Signal ",
            "failed (exitcode: ",
            _STOPPED,
            _USAGE,
            _TRACEBACK,
            _AGENTS,
        )
    )

    def __init__(self) -> None:
        self._workers: list[_Worker] = []
        self._stopped: LogLine | None = None
        self._misused: LogLine | None = None
        self._host: str | None = None
        self._rank: int | None = None
        self._root = False
        self._own = self._agents = 0
        self._raised: set[int] = set()

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        if field := _FIELD.match(text):
            self._field(field["name"], field["value"], line)
        elif _ROOT.match(text):
            self._root, self._host, self._rank = True, None, None
        elif text.startswith("Other Failures:"):
            self._root = False
        elif found := _FAILED.search(text):
            self._add(_Worker(int(found["code"]), int(found["pid"]), line, root=True, tabled=False))
        elif _DEATH.search(text):
            self._stopped = self._stopped or line
        elif text.startswith(_USAGE):
            self._misused = self._misused or line
        elif text.startswith("torch.distributed.elastic.") and _AGENTS in text:
            self._agents += 1
            self._root = False
        elif text.startswith(_TRACEBACK):
            self._count(line.rank)

    def _count(self, rank: int | None) -> None:
        """Count a traceback: of a rank, or without a rank, as those of agents."""
        if rank is None:
            self._own += 1
        elif len(self._raised) < _MOST:
            self._raised.add(rank)

    def _field(self, name: str, value: str, line: LogLine) -> None:
        """Take one row of a table; the rows of a worker have a fixed order, the signal's is the last."""
        if name == "host":
            self._host, self._rank = _short(value.strip()) or None, None
        elif name == "rank":
            found = _RANK.match(value)
            self._rank = int(found[1]) if found else None
        elif name == "exitcode" and (found := _EXIT.match(value)):
            self._add(_Worker(int(found["code"]), int(found["pid"]), line, self._root, self._rank, self._host))
        elif value.lstrip('"').startswith("Signal ") and self._workers and self._workers[-1].tabled:
            self._workers[-1].line = line

    def _add(self, worker: _Worker) -> None:
        if len(self._workers) < _MOST:
            self._workers.append(worker)

    def finish(self) -> Sequence[FailureMatch]:
        tabled = {(worker.code, worker.pid) for worker in self._workers if worker.tabled}
        roots = {worker.code for worker in self._workers if worker.tabled and worker.root}
        told = [
            worker
            for worker in self._workers
            if worker.tabled or ((worker.code, worker.pid) not in tabled and worker.code not in roots)
        ]
        # Whom its agent ended with its own signal did not fail.
        matches = [self._match(worker) for worker in told if worker.root or worker.signal != "SIGTERM"]
        if self._stopped:
            matches.append(_stopped(self._stopped))
        if self._misused:
            line, detail = self._misused, self._misused.text.removeprefix(_USAGE)
            misuse = Signature(Kind.LAUNCH_FAILURE, "usage@torchrun", line.quote, line.number, detail=detail[:200])
            matches.append(FailureMatch(misuse))
        return tuple(matches)

    def _match(self, worker: _Worker) -> FailureMatch:
        signal = worker.signal
        signature = Signature(
            Kind.CRASH if signal else Kind.ERROR,
            signal or f"exit@{worker.code}",
            worker.line.quote,
            worker.line.number,
            signal=signal,
            detail=None if signal else f"exit code {worker.code}",
            ranks=() if worker.rank is None else (worker.rank,),
            hosts=(worker.host,) if worker.host else (),
        )
        return FailureMatch(signature, self._weight(worker))

    def _weight(self, worker: _Worker) -> Priority:
        """Return the priority of an exit; signals and unusual codes have a reason of their own.

        Code 1 comes from an exception, which explains more if the rank printed it.
        """
        if worker.signal in _FROM_OUTSIDE or not worker.root:
            return Priority.CONSEQUENCE
        if worker.code == 1:
            spoke = worker.rank in self._raised or self._own > max(self._agents, 1)
            return Priority.CONSEQUENCE if spoke else Priority.UNSPECIFIC
        return Priority.EXIT

    def exits(self) -> Sequence[RankExit]:
        ends: dict[int, RankExit] = {}
        for worker in self._workers:
            if worker.rank is not None:
                code = None if worker.signal else worker.code
                ends[worker.rank] = RankExit(worker.rank, signal=-worker.code if worker.signal else None, code=code)
        return tuple(ends.values())


def _short(host: str) -> str:
    """Return a host's name up to its first dot; an address stays whole."""
    return host if host.replace(".", "").isdigit() else host.partition(".")[0]


def _stopped(line: LogLine) -> FailureMatch:
    """Return that a signal from outside stopped the agent, and the agent its workers."""
    found = _DEATH.search(line.text)
    signature = Signature(
        Kind.CRASH,
        "stopped@torchrun",
        line.quote,
        line.number,
        signal=signal_name(int(found["signal"])) if found else None,
        detail="stopped from outside",
        hosts=(line.host,) if line.host else (),
    )
    return FailureMatch(signature, Priority.LIMIT)
