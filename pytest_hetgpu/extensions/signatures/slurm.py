"""Slurm: exits of tasks, cancelled jobs, and reasons why a job, a step or a task could not be started.

Sources: src/srun/launch.c and allocate.c, src/sbatch, src/salloc, src/api/step_launch.c, slurmstepd
(src/slurmd/slurmstepd/req.c, mgr.c, task.c), src/interfaces/mpi.c, src/plugins/mpi, src/plugins/auth/munge, and the
reasons of src/common/slurm_errno.c.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority, slug
from pytest_hetgpu.extensions.signatures.engine import exits
from pytest_hetgpu.extensions.signatures.engine.exits import CUT_OFF, ExitReason
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind

_LAUNCH = Kind.LAUNCH_FAILURE
_NETWORK = Kind.NETWORK_FAILURE
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
_REFUSALS = (
    r"(?:Unable to allocate resources|Job submit/allocate failed|Batch job submission failed|"
    r"Failed to allocate resources|Unable to (?:create step|confirm allocation) for job \d+): (?P<detail>(?P<why>.*\S))"
)


class _ExitLine(NamedTuple):
    """srun's line on some tasks."""

    line: LogLine
    reason: ExitReason
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]


class Slurm(RuleParser):
    """Parser of srun, sbatch, salloc and slurmstepd; all that follows a cancellation is its consequence."""

    rules = (
        MatchRule(
            "execve(): bad interp",
            _LAUNCH,
            "no-interpreter@{program}",
            pattern=r"r\((?P<program>.*?)\): (?P<detail>.*)",
        ),
        MatchRule(
            "execve(): ",
            _LAUNCH,
            "no-program@{program}",
            pattern=r"error: execve\(\): (?P<program>\S+): (?P<detail>No such file or directory)",
        ),
        MatchRule("execve(): ", _LAUNCH, "exec@{detail}", pattern=r"error: execve\(\): .*: (?P<detail>[A-Z].*\S)"),
        *(
            MatchRule(words, _LAUNCH, "{why}@slurm", pattern=_REFUSALS)
            for words in (
                "Unable to allocate resources: ",
                "Job submit/allocate failed: ",
                "Batch job submission failed: ",
                "Failed to allocate resources: ",
                "Unable to create step for job ",
                "Unable to confirm allocation for job ",
            )
        ),
        MatchRule(
            "ask launch for ",
            _LAUNCH,
            "{why}@slurm",
            pattern=r"Task launch for \S+ failed on node (?P<host>[^\s:]+): (?P<detail>(?P<why>.*\S))",
        ),
        MatchRule(
            " launch failed: ",
            _LAUNCH,
            "{why}@slurm",
            pattern=r"srun: error: task (?P<rank>\d{1,9}) launch failed: (?P<detail>(?P<why>.*\S))",
        ),
        MatchRule(
            "Application launch ",
            _LAUNCH,
            "{why}@slurm",
            Priority.RELAYED,
            r"srun: error: Application launch (?:add )?failed: (?P<detail>(?P<why>.*\S))",
        ),
        MatchRule("timeout waiting for task launch", _LAUNCH, "no-start@slurm"),
        MatchRule(
            "can not load PMIx library",
            _LAUNCH,
            "missing-library@libpmix",
            pattern="mpi/pmix.*(?P<detail>can not load PMIx.*)",
        ),
        MatchRule("incorrect PMIx library version loaded", _LAUNCH, "bad-library@libpmix"),
        *(
            MatchRule(words, _LAUNCH, "no-mpi-plugin@slurm", Priority.RELAYED, rf"error: .*(?P<detail>{words}.*)")
            for words in (
                "Invalid MPI type ",
                "plugin name for mpi/",
                "Invalid MPI plugin name",
                "cannot find mpi plugin",
                "cannot create mpi context",
                "MPI: Cannot create context for ",
                "MPI: Unable to load any plugin",
            )
        ),
        MatchRule(
            "Error handler invoked: status", Kind.ERROR, "peer-gone@pmix", Priority.CONSEQUENCE, "mpi/pmix", fatal=False
        ),
        MatchRule(
            "collective timeout",
            _NETWORK,
            "collective-timeout@pmix",
            Priority.SYMPTOM,
            r"mpi/pmix.*(?P<detail>collective timeout.*)",
            fatal=False,
        ),
        MatchRule(
            "mpi/pmix",
            _LAUNCH,
            "{why}@pmix",
            Priority.SYMPTOM,
            r"error: +mpi/pmix\w*: \w+: \S+ \[-?\d+\]: \S+:\d+: (?P<detail>(?P<why>.*\S))",
            fatal=False,
        ),
        MatchRule(
            "mpi/pmi2: ",
            _LAUNCH,
            "{why}@pmi2",
            Priority.SYMPTOM,
            r"error: mpi/pmi2: (?P<detail>(?P<why>.*\S))",
            fatal=False,
        ),
        MatchRule("going to /tmp instead"),
        MatchRule("couldn't chdir to `", _LAUNCH, "no-folder@slurm", pattern=r"(?P<detail>couldn't chdir.*)"),
        MatchRule(
            "Could not open std", _LAUNCH, "no-output@slurm", pattern=r"error: (?P<detail>Could not open std\w+ file.*)"
        ),
        MatchRule(
            "Unable to open file",
            _LAUNCH,
            "no-program@{name}",
            pattern=r"(?:sbatch|salloc): error: (?P<detail>Unable to open file (?P<name>\S+))",
        ),
        MatchRule("does not look like a batch script", _LAUNCH, "no-script@slurm", pattern="sbatch: error: This does"),
        MatchRule("Munge ", _LAUNCH, "munge@slurm", pattern=r"(?P<detail>Munge (?:en|de)code failed: .*)"),
        MatchRule(
            "Failed to invoke ",
            _LAUNCH,
            "plugin@slurm",
            Priority.RELAYED,
            r"error: (?:\w+: )?(?P<detail>Failed to invoke (?:spank|task) plugin.*)",
        ),
        MatchRule(
            "rolog failed status",
            _LAUNCH,
            "prolog@slurm",
            pattern=r"error: (?P<detail>(?:TaskProlog|--task-prolog) failed.*)",
        ),
        MatchRule("Unable to configure MPI plugin", _LAUNCH, "mpi-plugin@slurm", Priority.RELAYED),
        MatchRule("Failed mpi_g_slurmstepd_prefork", _LAUNCH, "mpi-plugin@slurm", Priority.RELAYED),
        MatchRule(
            "IO setup failed",
            _LAUNCH,
            "no-output@slurm",
            Priority.RELAYED,
            r"slurmstepd.*(?P<detail>IO setup failed.*)",
        ),
        MatchRule(
            "Could not open output file",
            _LAUNCH,
            "no-output@slurm",
            pattern=r"slurmstepd.*(?P<detail>Could not open.*)",
        ),
        MatchRule("Unable to contact slurm controller", _LAUNCH, "no-controller@slurm", fatal=False),
        MatchRule(
            "Node failure on ",
            _NETWORK,
            "node-failure@slurm",
            Priority.EXIT,
            r"error: (?P<detail>Node failure on (?P<host>\S+))",
        ),
        MatchRule(
            "Cannot communicate with node",
            _NETWORK,
            "node-lost@slurm",
            Priority.SYMPTOM,
            r"srun: error: (?P<detail>.*)",
        ),
        MatchRule(
            " error with slurmstepd",
            _NETWORK,
            "node-lost@slurm",
            Priority.SYMPTOM,
            r"srun: error: (?P<detail>.*aborting, io.*)",
        ),
        MatchRule(
            "Aborting, ",
            _NETWORK,
            "node-lost@slurm",
            Priority.SYMPTOM,
            r"srun: error: (?P<detail>Aborting, (?:io|step|can not).*)",
        ),
        MatchRule(
            "has exceeded its time limit",
            Kind.TIMEOUT,
            "time-limit@slurm",
            Priority.LIMIT,
            r"salloc: .*has exceeded its time",
        ),
        MatchRule(
            "Slurm job ", _LAUNCH, "expired@slurm", pattern=r"srun: error: (?P<detail>Slurm job \d+ has expired)"
        ),
        MatchRule(
            "Job allocation ",
            Kind.TIMEOUT,
            "cancelled@slurm",
            Priority.LIMIT,
            r"salloc: (?:error: )?Job allocation \d+ has been revoked",
        ),
        MatchRule(
            "Job allocation ",
            _LAUNCH,
            "revoked@slurm",
            Priority.RELAYED,
            r"srun: (?:error: )?(?P<detail>Job allocation \d+ has been revoked)",
        ),
        MatchRule("srun: unrecognized option", _LAUNCH, "bad-option@slurm"),
        MatchRule(
            ": fatal: ", _LAUNCH, "{why}@slurm", pattern=r"\b(?:srun|sbatch|salloc): fatal: (?P<detail>(?P<why>.*\S))"
        ),
        # Options that the client itself rejects; its other messages begin differently.
        *(
            MatchRule(
                words,
                _LAUNCH,
                "{why}@slurm",
                Priority.RELAYED,
                r": error: (?P<detail>(?P<why>(?:[Ii]nvalid |Memory specification |CPU count |ntasks-per).*\S))",
                fatal=False,
            )
            for words in ("srun: error: ", "sbatch: error: ", "salloc: error: ")
        ),
        # Read by this class itself.
        *(
            MatchRule(words)
            for words in ("CANCELLED AT ", "KILLED AT ", "srun: Terminating", "_step_signal: Terminating")
        ),
    )

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

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        return super().build_match(rule, {**groups, "why": slug(groups.get("why", ""))}, line)

    def _ended(self, found: re.Match[str], line: LogLine) -> None:
        """Take one line of srun about tasks that ended."""
        how, ranks = found["how"], tuple(exits.parse_ranges(found["tasks"]))
        number, code = exits.signal_number(how), _EXITED.match(how)
        if code:
            reason = exits.exit_by_code(int(code[1]))
        elif number is not None:
            reason = exits.exit_by_signal(number)
        elif how.startswith("Out Of Memory"):
            reason = ExitReason(Kind.OUT_OF_MEMORY, "oom-kill@kernel", detail=how)
        else:
            return
        for rank in ranks:
            if len(self._exits) < _MOST:
                self._exits.setdefault(rank, RankExit(rank, number, int(code[1]) if code else None))
        if len(self._told) < _MOST:
            self._told.append(_ExitLine(line, reason, ranks[:_MOST_NAMED], exits.expand_hosts(found["hosts"])))

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
            late = (end is not None and told.line.number > end) or (failed and exits.is_killed(reason))
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
            kind, key, priority = Kind.TIMEOUT, _LIMITS.get(why, _CANCELLATION), CUT_OFF
            signal = (
                exits.exit_by_signal(number).signal
                if (number := exits.signal_number(why.replace("SIGNAL ", "")))
                else of
            )
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
