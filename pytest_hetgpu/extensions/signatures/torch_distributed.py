"""torch.distributed's log lines: c10d, Gloo, ProcessGroupNCCL and its watchdog, DataLoader workers, DeepSpeed.

Their exceptions belong to the tracebacks. Here are lines outside of them: `[E1120 12:28:14 FILE:LINE]` lines of
c10/util/Logging.cpp, and std::terminate's message about an uncaught exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures._messages.torch import GLOO, NCCL, MessageRule, filled_key, first_rule
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
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
_NET, _TIME = Kind.NETWORK_FAILURE, Kind.TIMEOUT
_AFTER = Priority.CONSEQUENCE


def _words(trigger: str, *, fatal: bool = True, pattern: str | None = None) -> MatchRule:
    """Return a rule whose kind, key and priority follow from the text (`_messages.torch`)."""
    return MatchRule(trigger, key=_WORDS, pattern=pattern or r"(?P<detail>\S.*)", fatal=fatal)


class TorchDistributed(RuleParser):
    """Lines of c10d's C++ side. A timeout of the watchdog ends the process; a lost store or socket may be met again."""

    rules = (
        # ProcessGroupGloo.cpp: logAndThrow, and the rank that was late
        _words("to pass monitoredBarrier in", pattern=r"(?P<detail>\[Rank \d+\]: Ranks? .*)"),
        _words("in monitoredBarrier after", pattern=r"(?P<detail>\[?Rank .*)"),
        # ProcessGroupNCCL.cpp
        _words("atchdog caught collective operation timeout"),
        _words("watchdog got stuck for"),
        _words("Heartbeat monitor timed out"),
        _words("timed out in blocking wait"),
        MatchRule(
            "Received a dump signal due to a collective timeout",
            _TIME,
            "timeout@ProcessGroupNCCL",
            _AFTER,
            r"(?P<detail>Received a dump signal due to a collective timeout.*)",
        ),
        MatchRule("taking the entire process down", key="taken-down@ProcessGroupNCCL", priority=_AFTER),
        MatchRule("Some NCCL operations have failed or timed out", key="taken-down@ProcessGroupNCCL", priority=_AFTER),
        MatchRule(
            "watchdog thread terminated with exception",
            key="taken-down@ProcessGroupNCCL",
            priority=_AFTER,
        ),
        MatchRule(
            "NCCL communicator was aborted",
            key="aborted@nccl",
            priority=_AFTER,
            pattern=r"(?P<detail>NCCL communicator was aborted.*)",
        ),
        # ProcessGroupNCCL's desync report (TraceUtils.h) and the flight recorder's dump: ranks that did not follow
        MatchRule(
            "joined but didn't finish collective",
            _TIME,
            "desync@ProcessGroupNCCL",
            Priority.SYMPTOM,
            r"\[(?P<rank>\d+)\] (?P<detail>joined but didn't finish collective.*)",
        ),
        MatchRule(
            "but didn't join collective",
            _TIME,
            "desync@ProcessGroupNCCL",
            Priority.SYMPTOM,
            r"\[(?P<rank>\d+)\] (?P<detail>finished collective .*)",
        ),
        # std::terminate: gloo::EnforceNotMet and IoException, c10::DistBackendError, c10::Error
        MatchRule("  what():", key=_WORDS, pattern=r"^\s*what\(\):\s+(?P<detail>.*(?:gloo/|NCCL|monitoredBarrier).*)"),
        MatchRule("  what():", pattern=r"^\s*what\(\):\s+CUDA error: (?P<detail>.*)"),
        # gloo/transport/tcp/debug_logger.cc: one line an attempt
        MatchRule("failed to connect, willRetry="),
        _words("Gloo connectFullMesh failed with", fatal=False),
        # socket.cpp, TCPStore.cpp: level E; a line of level W is retried, as IPv6 is before IPv4
        MatchRule(
            "[c10d] The client socket has ",
            _NET,
            "connect@c10d-store",
            Priority.UNSPECIFIC,
            r"\[E\d{4} .*\[c10d\] (?P<detail>The client socket has (?:timed out|failed).*)",
            fatal=False,
        ),
        MatchRule(
            "] [c10d] The server socket has failed to listen",
            Kind.ERROR,
            "address-in-use@c10d-store",
            Priority.RELAYED,
            r"\[E\d{4} .*(?P<detail>The server socket has failed to listen.*)",
            fatal=False,
        ),
        MatchRule(
            'Failed to check the "should dump" flag on TCPStore',
            _NET,
            "peer-lost@c10d-store",
            _AFTER,
            fatal=False,
        ),
        # torch/csrc/DataLoader.cpp, written by the worker before the main process reports its end
        MatchRule(
            "Unexpected bus error encountered in worker",
            Kind.OUT_OF_MEMORY,
            "no-space@dev-shm",
            Priority.RELAYED,
            r"ERROR: (?P<detail>Unexpected bus error encountered in worker.*)",
            fatal=False,
        ),
        # deepspeed/launcher/launch.py: a signal's number below 0; with a positive code training may have finished
        MatchRule(
            "exits with return code = -",
            Kind.CRASH,
            _ENDED,
            Priority.EXIT,
            r"(?P<detail>exits with return code = (?P<number>-[1-9]\d{0,9}))",
        ),
        # lightning/fabric/strategies/launchers/subprocess_script.py
        MatchRule(
            "Child process with PID ",
            Kind.CRASH,
            _ENDED,
            Priority.EXIT,
            r"(?:\[rank: (?P<rank>\d{1,7})\] )?"
            r"(?P<detail>Child process with PID \d+ terminated with code (?P<number>-?[1-9]\d{0,9}))",
        ),
        # horovod/common/stall_inspector.cc
        MatchRule(
            "by subset of ranks and are waiting for remainder of ranks",
            Kind.HANG,
            "stalled@horovod",
            Priority.STUCK,
            fatal=False,
        ),
    )

    def feed(self, line: LogLine) -> None:
        line = restore_exception_name(line)
        if not _EXCEPTION.match(line.text):
            super().feed(line)

    def finish(self) -> Sequence[FailureMatch]:
        return tuple(map(_on_a_host, super().finish()))

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
