"""Messages of MVAPICH besides those of MPICH.

Its signal handler (`error_sighandler` in src/util/signal and src/pm/mpirun/src/error_handling.c), its launcher
mpirun_rsh with mpispawn (src/pm/mpirun), and its InfiniBand channel (src/mpid/ch3/channels/mrail).
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.signatures._messages.verbs import completion
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

# A shell's exit code for a program that died of a signal.
_SHELL = 128
_DEADLY = ("SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGSEGV", "SIGTERM")


class Mvapich(RuleParser, rows="mvapich"):
    """MVAPICH2 and 3."""

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        code = int(groups.get("code", 0))
        if _SHELL < code < 2 * _SHELL and signal_name(code - _SHELL) in _DEADLY:
            groups = {"signal": signal_name(code - _SHELL), "rank": groups["rank"], "host": groups["host"]}
            rule = rule._replace(kind=Kind.CRASH, key="{signal}")
        if "status" in groups:
            groups = {**groups, "status": completion(int(groups["status"]))}
        return super().build_match(rule, groups, line)
