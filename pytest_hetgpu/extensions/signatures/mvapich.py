"""Messages of MVAPICH besides those of MPICH.

Its signal handler (`error_sighandler` in src/util/signal and src/pm/mpirun/src/error_handling.c), its launcher
mpirun_rsh with mpispawn (src/pm/mpirun), and its InfiniBand channel (src/mpid/ch3/channels/mrail).
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.signatures._messages.verbs import completion
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_RANK = r"\[(?P<host>[\w-]{1,64})[^\]\s:]{0,190}:mpi_rank_(?P<rank>\d{1,7})\]"
# A shell's exit code for a program that died of a signal.
_SHELL = 128
_DEADLY = ("SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGSEGV", "SIGTERM")
_SPAWN = r"\[(?P<host>[\w-]{1,64})[^\]\s:]{0,190}:mpispawn_\d{1,6}\]"


class Mvapich(RuleParser):
    """MVAPICH2 and 3."""

    rules = (
        MatchRule(
            "Caught error: ",
            Kind.CRASH,
            "{signal}",
            pattern=rf"{_RANK}\[error_sighandler\] Caught error: [^()]{{1,60}} \(signal (?P<signal>\d{{1,3}})\)",
        ),
        MatchRule(
            "terminated with signal",
            Kind.CRASH,
            "{signal}",
            Priority.EXIT,
            pattern=rf"{_SPAWN}\[child_handler\] MPI process \(rank: (?P<rank>\d{{1,7}}), pid: \d{{1,10}}\) "
            r"terminated with signal (?P<signal>\d{1,3})\b",
        ),
        MatchRule(
            "exited with status",
            Kind.ERROR,
            "exit@{code}",
            Priority.EXIT,
            pattern=rf"{_SPAWN}\[child_handler\] MPI process \(rank: (?P<rank>\d{{1,7}}), pid: \d{{1,10}}\) "
            r"(?P<detail>exited with status (?P<code>[1-9]\d{0,4}))\b",
        ),
        MatchRule(
            "terminated unexpectedly on",
            Kind.ERROR,
            "process-died@mpispawn",
            Priority.EXIT,
            pattern=r"MPI process \(rank: (?P<rank>\d{1,7})\) terminated unexpectedly on (?P<host>[\w.-]{1,255})",
        ),
        MatchRule(
            "MPI process died?",
            Kind.ERROR,
            "process-died@mpispawn",
            Priority.CONSEQUENCE,
            pattern=rf"{_SPAWN}.{{0,200}}MPI process died\?",
        ),
        MatchRule(
            "[mpirun_rsh]",
            Kind.ERROR,
            "aborted@mpirun_rsh",
            Priority.CONSEQUENCE,
            pattern=r"\[mpirun_rsh\]\[process_mpispawn_connection\] mpispawn_\d{1,6} from node (?P<host>[\w.-]{1,255}) "
            r"aborted: (?P<detail>.{1,200})",
        ),
        MatchRule(
            "Got completion with error ",
            Kind.NETWORK_FAILURE,
            "{status}@mvapich",
            pattern=r"(?<!NET/IB : )(?P<detail>Got completion with error (?P<status>\d{1,3})\b.{0,200})",
        ),
        MatchRule(
            "rdma_open_hca",
            Kind.TRANSPORT_UNAVAILABLE,
            "no-hca@mvapich",
            pattern=r"rdma_open_hca\(\d{1,6}\)\.{0,60}: (?P<detail>.{1,200})",
        ),
        # A note that it continues without the feature.
        MatchRule("Error in initializing MVAPICH2 ptmalloc library"),
    )

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        if "signal" in groups:
            groups = {**groups, "signal": signal_name(int(groups["signal"]))}
        code = int(groups.get("code", 0))
        if _SHELL < code < 2 * _SHELL and signal_name(code - _SHELL) in _DEADLY:
            groups = {"signal": signal_name(code - _SHELL), "rank": groups["rank"], "host": groups["host"]}
            rule = rule._replace(kind=Kind.CRASH, key="{signal}")
        if "status" in groups:
            groups = {**groups, "status": completion(int(groups["status"]))}
        return super().build_match(rule, groups, line)
