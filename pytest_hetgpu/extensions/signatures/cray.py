"""Messages of Cray MPICH and the launchers of HPE Cray systems: PALS' mpiexec, and ALPS' aprun before it.

These are not public. Centres that run them document the texts: CSCS (cray-mpich), OLCF (Frontier), ALCF (Aurora and
Polaris, known issues), NERSC. Error stacks are those of MPICH, with another head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser

# strsignal's words, as aprun prints them.
_SIGNALS = {
    "Hangup": "SIGHUP",
    "Interrupt": "SIGINT",
    "Illegal instruction": "SIGILL",
    "Trace/breakpoint trap": "SIGTRAP",
    "Aborted": "SIGABRT",
    "Abort": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Killed": "SIGKILL",
    "Segmentation fault": "SIGSEGV",
    "Broken pipe": "SIGPIPE",
    "Terminated": "SIGTERM",
    "CPU time limit exceeded": "SIGXCPU",
    "User defined signal 1": "SIGUSR1",
    "User defined signal 2": "SIGUSR2",
}
_FROM_OUTSIDE = ("SIGTERM", "SIGINT", "SIGHUP")


class Cray(RuleParser, rows="cray"):
    """Cray MPICH at its start, PALS and ALPS."""

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        if "signal" not in groups:
            return super().build_match(rule, groups, line)
        said = groups["signal"]
        name = signal_name(int(said)) if said.isdecimal() else _SIGNALS.get(said, f"SIG{said.upper()}")
        read = super().build_match(rule, {**groups, "signal": name}, line)
        return replace(read, priority=Priority.CONSEQUENCE) if name in _FROM_OUTSIDE else read
