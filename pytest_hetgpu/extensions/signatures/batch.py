"""Ends of jobs from outside: batch systems, `timeout`, systemd, CI services, and people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.exits import exit_by_code, exit_by_signal, signal_number
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.records import RankExit

_MOST_EXITS = 10_000

# A task that was terminated, in the words of flux's event log, of flux-job, and of srun.
_SIGNS = ('"signaled":15', "exited with exit code 143", "task(s) Terminated", "type=cancel severity=0", ": Terminated")
# Keys that `build_match` replaces by the signal or code in the line.
_ENDED = "ended"
_NOTED = "stopped@operator"


class BatchSystem(RuleParser, rows="batch"):
    """Parser of limits, cancellations, and exits that launchers of batch systems report."""

    def __init__(self) -> None:
        super().__init__()
        self._terminated = False
        self._exits: dict[int, RankExit] = {}

    def feed(self, line: LogLine) -> None:
        self._terminated |= any(sign in line.text for sign in _SIGNS)
        super().feed(line)

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        match = super().build_match(rule, groups, line)
        if name := groups.get("name"):
            signal = name if name.startswith("SIG") or name.isdecimal() else f"SIG{name}"
            return replace(match, signature=replace(match.signature, signal=None if name.isdecimal() else signal))
        if rule.key != _ENDED:
            return match
        number = int(groups["number"]) if "number" in groups else signal_number(groups.get("how", ""))
        code = None if number else int(groups.get("code", "1"))
        reason = exit_by_signal(number) if number else exit_by_code(code or 0)
        for rank in match.signature.ranks if "rank" in groups and len(self._exits) < _MOST_EXITS else ():
            self._exits.setdefault(rank, RankExit(rank, number, code))
        signature = replace(
            match.signature, kind=reason.kind, key=reason.key, signal=reason.signal, detail=reason.detail
        )
        return replace(match, signature=signature, priority=reason.priority)

    def exits(self) -> Sequence[RankExit]:
        return tuple(self._exits.values())

    def finish(self) -> Sequence[FailureMatch]:
        matches = super().finish()
        return tuple(map(_deliberate, matches)) if self._terminated else matches


def _deliberate(match: FailureMatch) -> FailureMatch:
    """Return a note on terminated ranks as a relayed cause, with SIGTERM: their peers' messages are consequences."""
    if match.signature.key != _NOTED:
        return match
    return replace(match, priority=Priority.RELAYED, signature=replace(match.signature, signal="SIGTERM"))
