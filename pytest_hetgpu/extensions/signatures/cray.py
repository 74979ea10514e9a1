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
from pytest_hetgpu.model.verdict import Kind

_HOST = r"(?P<host>[\w-]{1,64})(?:\.[\w.-]{1,190})?"
_CRAY = r"(?:\[Rank (?P<rank>\d{1,7})\][^\n]{0,300}?)?"

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


class Cray(RuleParser):
    """Cray MPICH at its start, PALS and ALPS."""

    rules = (
        MatchRule(
            "GPU_SUPPORT_ENABLED is requested, but GTL library is not linked",
            Kind.MISSING_LIBRARY,
            "no-GTL@MPIDI_CRAY_init",
            pattern=rf"{_CRAY}(?P<detail>GPU_SUPPORT_ENABLED is requested, but GTL library is not linked)",
        ),
        MatchRule(
            "Unable to use a NIC_POLICY of",
            Kind.ERROR,
            "NIC_POLICY@cray-mpich",
            pattern=r"(?P<detail>Unable to use a NIC_POLICY of \W?\w{1,30}\W?[^\n]{0,10}"
            r"(?:Rank (?P<rank>\d{1,7}) is not confined to a single NUMA node)?)",
        ),
        MatchRule(
            "No VNIs available in internal allocator",
            Kind.LAUNCH_FAILURE,
            "no-vni@pals",
            pattern=rf"(?:start failed on {_HOST}: )?(?P<detail>No VNIs available in internal allocator)",
        ),
        MatchRule(
            "start failed on ",
            Kind.LAUNCH_FAILURE,
            "start-failed@pals",
            pattern=rf"\bstart failed on {_HOST}: (?P<detail>.{{1,300}})",
        ),
        MatchRule(
            "launch failed on ",
            Kind.LAUNCH_FAILURE,
            "launch-failed@pals",
            pattern=rf"\blaunch failed on {_HOST}: (?P<detail>.{{1,300}})",
        ),
        MatchRule(
            "ping failed on ",
            Kind.NETWORK_FAILURE,
            "ping-failed@pals",
            Priority.SYMPTOM,
            pattern=rf"\bping failed on {_HOST}: (?P<detail>.{{1,300}})",
        ),
        MatchRule(
            " died from signal ",
            Kind.CRASH,
            "{signal}",
            Priority.EXIT,
            pattern=rf"\b{_HOST}: rank (?P<rank>\d{{1,7}}) died from signal (?P<signal>\d{{1,3}})\b",
        ),
        MatchRule(
            " exited with code ",
            Kind.ERROR,
            "exit@{code}",
            Priority.EXIT,
            pattern=rf"\b{_HOST}: rank (?P<rank>\d{{1,7}}) (?P<detail>exited with code (?P<code>[1-9]\d{{0,9}}))\b",
        ),
        # aprun
        MatchRule(
            " exit signal ",
            Kind.CRASH,
            "{signal}",
            Priority.EXIT,
            pattern=r"PE RANK (?P<rank>\d{1,7}) exit signal (?P<signal>[A-Z][\w/ ]{2,30}?)\s*$",
        ),
        MatchRule(
            "OOM killer terminated this process",
            Kind.OUT_OF_MEMORY,
            "oom-killer@alps",
            pattern=r"(?:\[NID (?P<host>\d{1,6})\].{0,200})?(?P<detail>OOM killer terminated this process)",
        ),
        # The GPU transport layer (GTL) prints the error of CUDA or HSA.
        MatchRule(
            "GTL DEBUG",
            Kind.ERROR,
            "{call}@GTL",
            pattern=r"\(GTL DEBUG: (?P<rank>\d{1,7})\) (?P<detail>(?P<call>(?:cu|cuda|hsa_|hip|ze)\w{1,60}): .{0,200})",
            fatal=False,
        ),
    )

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        if "signal" not in groups:
            return super().build_match(rule, groups, line)
        said = groups["signal"]
        name = signal_name(int(said)) if said.isdecimal() else _SIGNALS.get(said, f"SIG{said.upper()}")
        read = super().build_match(rule, {**groups, "signal": name}, line)
        return replace(read, priority=Priority.CONSEQUENCE) if name in _FROM_OUTSIDE else read
