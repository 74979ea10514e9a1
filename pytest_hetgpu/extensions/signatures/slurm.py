"""Slurm: exits of tasks, cancelled jobs, and reasons why a job, a step or a task could not be started."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.exits import (
    CUT_OFF,
    ExitReason,
    exit_by_code,
    exit_by_signal,
    expand_hosts,
    is_killed,
    parse_ranges,
    signal_number,
)
from pytest_hetgpu.extensions.signatures.engine.rules import RuleParser
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind

_NETWORK = Kind.NETWORK_FAILURE
_TIMEOUT = Kind.TIMEOUT
_MOST = 10_000
_MOST_NAMED = 64

_TASKS = lazy(r"srun: error: (?P<hosts>\S{1,2000}): tasks? (?P<tasks>[\d,-]+): (?P<how>\S.*?)\s*$")
_EXITED = lazy(r"Exited with exit code (\d{1,9})")
# Before 17.11 without `ON node`; killed by hand it read KILLED ... WITH SIGNAL.
_CANCELLED = lazy(
    r"\*\*\* (?:JOB|STEP) \S+ (?:ON (?P<host>\S+) )?(?:CANCELLED|KILLED) AT \S+"
    r"(?: (?:DUE TO|DUE to|WITH) (?P<why>[^*]{1,100}?))? \*\*\*"
)
# srun's message if srun itself ends a step, because a task failed.
_STOPS = ("srun: Terminating", "_step_signal: Terminating", "DUE TO TASK FAILURE")

_LIMITS = {"TIME LIMIT": "time-limit@slurm", "PREEMPTION": "preempted@slurm", "JOB REQUEUE": "requeued@slurm"}
_CANCELLATION = "cancelled@slurm"


class _ExitLine(NamedTuple):
    """srun's line on some tasks."""

    line: LogLine
    reason: ExitReason
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]


class Slurm(RuleParser, rows="slurm"):
    """Parser of srun, sbatch, salloc and slurmstepd; all that follows a cancellation is its consequence."""

    def __init__(self) -> None:
        super().__init__()
        self._told: list[_ExitLine] = []
        self._cancelled: list[tuple[LogLine, str | None, str]] = []
        self._stopped = False
        self._exits: dict[int, RankExit] = {}

    def feed(self, line: LogLine) -> None:
        text = line.text[:4096]
        self._stopped |= any(words in text for words in _STOPS)
        if found := _TASKS.search(text):
            self._ended(found, line)
        elif found := _CANCELLED.search(text):
            if len(self._cancelled) < _MOST:
                self._cancelled.append((line, found["host"], found["why"] or ""))
        else:
            super().feed(line)

    def _ended(self, found: re.Match[str], line: LogLine) -> None:
        """Take one line of srun about tasks that ended."""
        how, ranks = found["how"], tuple(parse_ranges(found["tasks"]))
        number, code = signal_number(how), _EXITED.match(how)
        if code:
            reason = exit_by_code(int(code[1]))
        elif number is not None:
            reason = exit_by_signal(number)
        elif how.startswith("Out Of Memory"):
            reason = ExitReason(Kind.OUT_OF_MEMORY, "oom-kill@kernel", detail=how)
        else:
            return
        for rank in ranks:
            if len(self._exits) < _MOST:
                self._exits.setdefault(rank, RankExit(rank, number, int(code[1]) if code else None))
        if len(self._told) < _MOST:
            self._told.append(_ExitLine(line, reason, ranks[:_MOST_NAMED], expand_hosts(found["hosts"])))

    def exits(self) -> Sequence[RankExit]:
        return tuple(self._exits.values())

    def finish(self) -> Sequence[FailureMatch]:
        cancelled = self._cancellations()
        end = min((match.signature.line for match in cancelled), default=None)
        return (*super().finish(), *cancelled, *self._endings(end))

    def _endings(self, end: int | None) -> list[FailureMatch]:
        """Return one match per line about exits; among killed tasks only the first died by itself."""
        matches: list[FailureMatch] = []
        failed = False
        for told in self._told:
            reason = told.reason
            late = (end is not None and told.line.number > end) or (failed and is_killed(reason))
            failed |= reason.priority is not Priority.CONSEQUENCE
            signature = _signature(told.line, reason, told.ranks, told.hosts)
            matches.append(FailureMatch(signature, Priority.CONSEQUENCE if late else reason.priority))
        return matches

    def _cancellations(self) -> list[FailureMatch]:
        """Return cancellations, without those by srun because of a task that had failed before."""
        matches = []
        failed = min((told.line.number for told in self._told if told.reason.priority is Priority.EXIT), default=None)
        of = next((told.reason.signal for told in self._told if told.reason.signal in ("SIGTERM", "SIGKILL")), None)
        for line, host, why in self._cancelled:
            kind, key, priority = _TIMEOUT, _LIMITS.get(why, _CANCELLATION), CUT_OFF
            signal = exit_by_signal(number).signal if (number := signal_number(why.replace("SIGNAL ", ""))) else of
            if why.startswith("NODE FAILURE"):
                kind, key, priority, signal = _NETWORK, "node-failure@slurm", Priority.EXIT, None
            elif key == _CANCELLATION and (self._stopped or (failed is not None and failed < line.number)):
                continue
            detail = f"due to {why.lower()}" if why else "cancelled"
            reason = ExitReason(kind, key, priority, signal, detail)
            matches.append(FailureMatch(_signature(line, reason, (), (host,) if host else ()), priority))
        return matches


def _signature(line: LogLine, reason: ExitReason, ranks: tuple[int, ...], names: tuple[str, ...]) -> Signature:
    signature = Signature(reason.kind, reason.key, line.quote, line.number, signal=reason.signal, detail=reason.detail)
    return replace(signature, ranks=ranks, hosts=names)
