"""Ends of jobs from outside: batch systems, `timeout`, systemd, CI services, and people.

Sources:

- GNU's timeout, time and make.
- OpenPBS's src/resmom/mom_main.c (`=>> PBS:`).
- IBM Spectrum LSF's job reports (its reference lists the TERM_ reasons) and jsrun.
- Grid Engine's source/daemons/execd and systemd's src/core/service.c.
- GitHub's actions/runner, GitLab's gitlab-runner and Jenkins' pipeline steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority, slug
from pytest_hetgpu.extensions.signatures.engine.exits import CUT_OFF, exit_by_code, exit_by_signal, signal_number
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind

_TIMEOUT = Kind.TIMEOUT
_LAUNCH = Kind.LAUNCH_FAILURE
_LIMIT = Priority.LIMIT
_MOST_EXITS = 10_000

# A task that was terminated, in the words of flux's event log, of flux-job, and of srun.
_SIGNS = ('"signaled":15', "exited with exit code 143", "task(s) Terminated", "type=cancel severity=0", ": Terminated")
# Keys that `build_match` replaces by the signal or code in the line.
_ENDED = "ended"
_NOTED = "stopped@operator"
_UNITS = r"(?:s|m|h|min|sec|hr|seconds?|secs?|minutes?|mins?|hours?|hrs?)\b"
_NOTES = tuple(
    f"{verb} {joint} "
    for verb in ("stopped", "killed", "cancelled", "canceled", "aborted", "terminated", "interrupted")
    for joint in ("at", "after", "due to")
)

_LSF = {
    "RUNLIMIT": "time-limit@lsf",
    "DEADLINE": "time-limit@lsf",
    "WINDOW": "time-limit@lsf",
    "CPULIMIT": "cpu-time@lsf",
    "OWNER": "cancelled@lsf",
    "FORCE_OWNER": "cancelled@lsf",
    "ADMIN": "cancelled@lsf",
    "FORCE_ADMIN": "cancelled@lsf",
    "PREEMPT": "preempted@lsf",
    "REQUEUE_OWNER": "requeued@lsf",
    "REQUEUE_ADMIN": "requeued@lsf",
}


class BatchSystem(RuleParser):
    """Parser of limits, cancellations, and exits that launchers of batch systems report."""

    rules = (
        # timeout.c
        MatchRule(
            "timeout: sending signal ",
            _TIMEOUT,
            "time-limit@timeout",
            CUT_OFF,
            r"timeout: (?P<detail>sending signal (?P<name>\w+) to .*)",
        ),
        MatchRule(
            "timeout: failed to run command",
            _LAUNCH,
            "no-program@{program}",
            pattern=r"command .(?P<program>\S+?).: (?P<detail>No such file.*)",
        ),
        MatchRule(
            "timeout: failed to run command", _LAUNCH, "exec@{detail}", pattern=r"command .\S+?.: (?P<detail>.*\S)"
        ),
        # mom_main.c, in the words of the resource that was exceeded
        MatchRule(
            ": job killed: ",
            Kind.OUT_OF_MEMORY,
            "memory-limit@pbs",
            pattern=r"=>> PBS: (?P<detail>job killed: (?:node \d+ \(\S*\) )?(?:p?v?mem|job.*mem)\b.*)",
        ),
        MatchRule(
            ": job killed: ", _TIMEOUT, "time-limit@pbs", CUT_OFF, r"=>> PBS: (?P<detail>job killed: walltime .*)"
        ),
        MatchRule(
            ": job killed: ",
            _TIMEOUT,
            "cpu-time@pbs",
            CUT_OFF,
            r"=>> PBS: (?P<detail>job killed: (?:node \d+ \(\S*\) )?p?cput .*)",
        ),
        MatchRule("=>> PBS: ", Kind.ERROR, "killed@pbs", Priority.EXIT, r"=>> PBS: (?P<detail>job killed.*)"),
        MatchRule(
            "Job exceeded resource ",
            _TIMEOUT,
            "time-limit@pbs",
            CUT_OFF,
            r"(?P<detail>Job exceeded resource (?:walltime|cput))",
        ),
        MatchRule(
            "Job exceeded resource ",
            Kind.OUT_OF_MEMORY,
            "memory-limit@pbs",
            pattern=r"(?P<detail>Job exceeded resource v?mem)",
        ),
        *(
            MatchRule(words, _LAUNCH, "{why}@pbs", pattern=rf"^(?P<detail>qsub: (?P<why>{words[6:]}.*))")
            for words in (
                "qsub: Unknown queue",
                "qsub: Job violates",
                "qsub: Unauthorized",
                "qsub: Bad UID",
                "qsub: Illegal",
                "qsub: Job rejected",
                "qsub: script file",
                "qsub: Access ",
                "qsub: Queue ",
            )
        ),
        # LSF
        *(
            MatchRule(f"TERM_{reason}:", _TIMEOUT, key, _LIMIT, rf"^TERM_{reason}: (?P<detail>.*)")
            for reason, key in _LSF.items()
        ),
        *(
            MatchRule(
                f"TERM_{reason}:", Kind.OUT_OF_MEMORY, "memory-limit@lsf", pattern=rf"^TERM_{reason}: (?P<detail>.*)"
            )
            for reason in ("MEMLIMIT", "SWAP")
        ),
        MatchRule("TERM_", Kind.ERROR, "{reason}@lsf", Priority.EXIT, r"^TERM_(?P<reason>[A-Z_]+): (?P<detail>job .*)"),
        MatchRule("Exited with exit code ", key=_ENDED, pattern=r"^Exited with exit code (?P<code>[1-9]\d{0,8})\.\s*$"),
        MatchRule("Exited by signal ", key=_ENDED, pattern=r"^Exited by signal (?P<number>\d{1,3})\.\s*$"),
        MatchRule(
            "One or more process",
            key=_ENDED,
            pattern=r"first noticed rank (?P<rank>\d{1,9})\) terminated with signal (?P<number>\d{1,3})",
        ),
        # Grid Engine
        MatchRule(
            "wallclock time",
            _TIMEOUT,
            "time-limit@sge",
            _LIMIT,
            r"(?P<detail>job \S+ exceeded (?:hard|soft) wallclock time.*)",
        ),
        MatchRule(
            "exceeds job hard limit",
            Kind.OUT_OF_MEMORY,
            "memory-limit@sge",
            pattern=r"(?P<detail>exceeds job hard limit \"h_(?:vmem|rss|data)\".*)",
        ),
        MatchRule(
            "exceeds job hard limit",
            _TIMEOUT,
            "time-limit@sge",
            _LIMIT,
            r"(?P<detail>exceeds job hard limit \"h_(?:rt|cpu)\".*)",
        ),
        MatchRule("h_rt, h_cpu, or h_vmem", _TIMEOUT, "limit@sge", _LIMIT),
        # GNU time and make
        MatchRule(
            "Command terminated by signal ",
            key=_ENDED,
            pattern=r"^Command terminated by signal (?P<number>\d{1,3})\s*$",
        ),
        MatchRule("Command exited with non-zero status", key=_ENDED, pattern=r"status (?P<code>[1-9]\d{0,8})\s*$"),
        MatchRule(
            ": *** [", key=_ENDED, pattern=r"^g?make(?:\[\d+\])?: \*\*\* \[[^\[\]]*\] Error (?P<code>[1-9]\d{0,8})\b"
        ),
        MatchRule(": *** [", key=_ENDED, pattern=r"^g?make(?:\[\d+\])?: \*\*\* \[[^\[\]]*\] (?P<how>[A-Z].*\S)"),
        # systemd
        MatchRule("Failed with result 'oom-kill'", Kind.OUT_OF_MEMORY, "oom-kill@kernel"),
        MatchRule("killed by the OOM killer", Kind.OUT_OF_MEMORY, "oom-kill@kernel"),
        MatchRule("Failed with result 'timeout'", _TIMEOUT, "time-limit@systemd", _LIMIT),
        MatchRule("Service reached runtime time limit", _TIMEOUT, "time-limit@systemd", _LIMIT),
        MatchRule(
            "Main process exited, code=", key=_ENDED, pattern=r"code=(?:killed|dumped), status=(?P<number>\d{1,3})/"
        ),
        MatchRule("Main process exited, code=", key=_ENDED, pattern=r"code=exited, status=(?P<code>[1-9]\d{0,8})/"),
        # GitHub, GitLab, Jenkins
        MatchRule("exceeded the maximum execution time", _TIMEOUT, "time-limit@github", _LIMIT),
        MatchRule(
            " has timed out after ",
            _TIMEOUT,
            "time-limit@github",
            _LIMIT,
            r"##\[error\](?P<detail>The action .*has timed out after \d+ minutes)",
        ),
        MatchRule(
            "The operation was canceled",
            _TIMEOUT,
            "cancelled@github",
            _LIMIT,
            r"##\[error\](?P<detail>The operation was cancell?ed)",
        ),
        MatchRule("has received a shutdown signal", _TIMEOUT, "cancelled@github", _LIMIT),
        MatchRule(
            "lost communication with the server", Kind.NETWORK_FAILURE, "node-lost@github", Priority.EXIT, "runner"
        ),
        MatchRule(
            "##[error]Process completed with exit code ", key=_ENDED, pattern=r"exit code (?P<code>[1-9]\d{0,8})"
        ),
        MatchRule(
            "Error: Process completed with exit code ",
            key=_ENDED,
            pattern=r"^Error: .*exit code (?P<code>[1-9]\d{0,8})",
        ),
        MatchRule("ERROR: Job failed: execution took longer than", _TIMEOUT, "time-limit@gitlab", _LIMIT),
        MatchRule("ERROR: Job failed: canceled", _TIMEOUT, "cancelled@gitlab", _LIMIT),
        MatchRule("script canceled externally", _TIMEOUT, "cancelled@gitlab", _LIMIT),
        MatchRule(
            "ERROR: Job failed", key=_ENDED, pattern=r"ERROR: Job failed: .*exit (?:code|status) (?P<code>[1-9]\d{0,8})"
        ),
        MatchRule(
            "ERROR: Job failed (system failure)",
            _LAUNCH,
            "system-failure@gitlab",
            pattern=r"\(system failure\): (?P<detail>.*)",
        ),
        MatchRule("Cancelling nested steps due to timeout", _TIMEOUT, "time-limit@jenkins", _LIMIT),
        MatchRule("Build timed out (after ", _TIMEOUT, "time-limit@jenkins", _LIMIT),
        MatchRule("Timeout has been exceeded", _TIMEOUT, "time-limit@jenkins", _LIMIT),
        MatchRule(
            "script returned exit code ", key=_ENDED, pattern=r"script returned exit code (?P<code>[1-9]\d{0,8})"
        ),
        # people
        *(
            MatchRule(
                words,
                _TIMEOUT,
                _NOTED,
                _LIMIT,
                rf"(?i:^\W{{0,9}}(?:(?:job|run|test) (?:was )?)?(?P<detail>{words.strip()}\b.{{0,40}}?"
                rf"(?:\b\d+(?:\.\d+)? ?{_UNITS}|time ?limit|\btoo (?:long|slow)).{{0,200}}))",
                fatal=words.isupper(),
            )
            for words in (*map(str.upper, _NOTES), *_NOTES, *map(str.capitalize, _NOTES))
        ),
        # That it was ended so, for a note above or below.
        *map(MatchRule, _SIGNS),
    )

    def __init__(self) -> None:
        super().__init__()
        self._terminated = False
        self._exits: dict[int, RankExit] = {}

    def feed(self, line: LogLine) -> None:
        self._terminated |= any(sign in line.text for sign in _SIGNS)
        super().feed(line)

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        match = super().build_match(rule, {**groups, "why": slug(groups.get("why", ""))}, line)
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
