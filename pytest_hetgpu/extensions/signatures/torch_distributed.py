"""torch.distributed's log lines: c10d, Gloo, ProcessGroupNCCL and its watchdog, DataLoader workers, DeepSpeed.

Their exceptions belong to the tracebacks. Here are lines outside of them: `[E1120 12:28:14 FILE:LINE]` lines of
c10/util/Logging.cpp, and std::terminate's message about an uncaught exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures._messages.torch import GLOO, NCCL, MessageRule, filled_key, first_rule
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.collectives import Works
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.extensions.signatures.engine.tracebacks import restore_exception_name
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_WORDS, _ENDED = "{words}", "{ended}"
_LONGEST_DETAIL = 200
# An exception's own line is read with its traceback.
_EXCEPTION = lazy(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception): ")
_SENSES: tuple[MessageRule, ...] = (*GLOO, *NCCL)
_AFTER = Priority.CONSEQUENCE


class TorchDistributed(RuleParser, rows="torch_distributed"):
    """Lines of c10d's C++ side. A timeout of the watchdog ends the process; a lost store or socket may be met again."""

    def __init__(self) -> None:
        super().__init__()
        self._works = Works()

    def feed(self, line: LogLine) -> None:
        line = restore_exception_name(line)
        self._works.feed(line)
        if not _EXCEPTION.match(line.text):
            super().feed(line)

    def finish(self) -> Sequence[FailureMatch]:
        return (*map(_on_a_host, super().finish()), *self._works.finish())

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        if rule.key == _WORDS:
            return _of_words(super().build_match(rule, groups, line), groups["detail"])
        if rule.key == _ENDED:
            return _ended(rule, int(groups["number"]), super().build_match(rule, groups, line))
        return super().build_match(rule, groups, line)


def _on_a_host(match: FailureMatch) -> FailureMatch:
    """Remove the source files at the start of Gloo's lines, which read like a host and a process."""
    hosts = tuple(host for host in match.signature.hosts if "/" not in host)
    return replace(match, signature=replace(match.signature, hosts=hosts), process=None)


def _of_words(match: FailureMatch, words: str) -> FailureMatch:
    found = first_rule(words, _SENSES)
    if found is None:
        return replace(match, signature=replace(match.signature, key="failed@c10d"), priority=Priority.RELAYED)
    sense, regex_match = found
    aborted = sense.kind is Kind.ERROR and sense.priority is Priority.CAUSE  # it was not caught, so the process aborts
    rank = regex_match.groupdict().get("rank")
    signature = replace(
        match.signature,
        kind=Kind.CRASH if aborted else sense.kind,
        signal="SIGABRT" if aborted else None,
        key=filled_key(sense, regex_match),
        detail=words[:_LONGEST_DETAIL],
        entry_point=sense.entry,
        ranks=(int(rank),) if rank else match.signature.ranks,
    )
    return replace(match, signature=signature, priority=sense.priority)


def _ended(rule: MatchRule, number: int, match: FailureMatch) -> FailureMatch:
    if number > 0:
        signature = replace(match.signature, kind=Kind.ERROR, key=f"exit@{number}")
        return replace(match, signature=signature, priority=Priority.UNSPECIFIC)
    name = signal_name(-number)
    outside = name in ("SIGTERM", "SIGINT", "SIGHUP")
    signature = replace(match.signature, key=name, signal=name)
    return replace(match, signature=signature, priority=_AFTER if outside else rule.priority)
