"""What a judge is: it looks at one side of a finished run, and says what it finds wrong with it."""

from __future__ import annotations

import abc
import enum
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pytest_hetgpu.analysis.judges import _foreign
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.job import Job, Node
from pytest_hetgpu.model.outcome import Evidence, Finding, RunResult
from pytest_hetgpu.model.records import Hello, RankExit
from pytest_hetgpu.model.verdict import Kind

_HIGHEST_NAMED_SIGNAL = 31
FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})
"""Signals that stop a process from outside; after a time limit they are ours, not a rank's failure."""


@dataclass(frozen=True, slots=True)
class Case:
    """One finished run as judges see it; `further` launches of the same job tell whether it is slow."""

    job: Job
    result: RunResult
    evidence: Evidence
    further: tuple[Case, ...] = ()


TAKEN_AWAY = frozenset(
    (
        *("node-failure@slurm", "preempted@slurm", "cancelled@slurm", "time-limit@slurm"),
        *("node-lost@kubernetes", "preempted@kubernetes", "deleted@kubernetes", "evicted@kubernetes"),
        *("time-limit@kubernetes", "no-server@kubernetes", "engine-lost@docker"),
    )
)
"""Keys that say that Slurm, Kubernetes or a container engine took the nodes; what ran there was killed for that."""
_BY_THEM = frozenset({signal.SIGTERM, signal.SIGKILL})
LOST_INTERFACE = "lost@interface"
"""The key that says that an interface of a node has gone since the node was made."""
_ENGINE_AWAY = frozenset(("engine-lost@docker", "not-ready@engine"))
_NO_LAUNCHER = ("no such file", "Stale file handle", "Transport endpoint is not connected", "Input/output error")


class Force(enum.IntEnum):
    """How much a finding decides, strongest first."""

    FINAL = 0
    """Nothing else the run showed matters: it was cut short, or it ran in another world than the one asked for."""
    FIRM = 1
    """A fact about the run. Of several the worst kind decides."""
    VAGUE = 2
    """Says that something is wrong, not what (an exit code, a silent rank): decides where nothing firm does."""
    LEAST = 3
    """Says of a run that is sound that it is slow: decides where nothing else does."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """A finding, and how much it decides."""

    finding: Finding
    force: Force = Force.FIRM


class Judge(abc.ABC):
    """Looks at one side of a run."""

    name: ClassVar[str]

    @abc.abstractmethod
    def opinions(self, case: Case) -> Iterator[Opinion]:
        """What is wrong, most telling first; nothing where this side is as it should be."""

    def says(self, kind: Kind, why: str, force: Force = Force.FIRM, signature: Signature | None = None) -> Opinion:
        """An opinion of this judge; `why` is put in one line."""
        return Opinion(Finding(self.name, kind, " ".join(why.split()), signature), force)


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def placed(signature: Signature) -> str:
    """`SIGSEGV@libuct.so!f in MPI_Send on rank 0`."""
    entry = f" in {signature.entry_point}" if signature.entry_point else ""
    ranks = ", ".join(map(str, signature.ranks[:5]))
    where = f" on rank{'s' * (len(signature.ranks) > 1)} {ranks}" if ranks else ""
    return f"{signature.key}{entry}{where}"


def killed(case: Case) -> tuple[RankExit, ...]:
    """Ranks that died of a signal, as the launcher tells it.

    SIGTERM does not count where another rank ended by itself: the launcher then stops the rest. After a time limit or
    an interruption no signal counts that could be ours.
    """
    stopped = case.result.timed_out or case.result.interrupted is not None
    exits = case.evidence.exits
    others = any(ended.aborted or ended.code or ended.signal not in (None, signal.SIGTERM) for ended in exits)
    return tuple(
        ended
        for ended in exits
        if ended.signal is not None
        and not (stopped and ended.signal in FROM_OUTSIDE)
        and not (others and ended.signal == signal.SIGTERM)
    )


def launcher_signal(case: Case) -> int | None:
    """The signal that ended the launcher, or that its exit status 128+N reports of a rank.

    Launchers use such numbers for failures to start as well (131 and 135 of Open MPI 4, 183 of 5), so they count only
    up to 31, and only where ranks did run. A rank that the launcher says ended with 129 was not hung up on: UCX's tools
    return -127 where they were used wrongly.
    """
    result = case.result
    if result.timed_out or result.interrupted is not None or result.signal is None:
        return None
    died_itself = (result.returncode or 0) < 0
    told_of_rank = bool(case.evidence.hellos) and result.signal <= _HIGHEST_NAMED_SIGNAL
    hung_up = result.signal == signal.SIGHUP
    if not died_itself and hung_up and any(ended.code == result.returncode for ended in case.evidence.exits):
        return None
    return result.signal if died_itself or told_of_rank else None


def rank_failed_first(case: Case, cause: Signature | None) -> bool:
    """Whether a rank had failed before the run got stuck or its launcher died, which are consequences then.

    Either the cause is that something could not be started or loaded, and a rank never reported; or the launcher says
    that a rank ended by itself. (PRRTE 3.0, the launcher of Open MPI 5.0, hangs for ever, aborts or crashes when a rank
    ends while others connect.)
    """
    if cause is None:
        return False
    silent = len(case.evidence.hellos) < case.job.demand.ranks
    unstarted = silent and cause.kind in (Kind.LAUNCH_FAILURE, Kind.MISSING_LIBRARY)
    codes = (ended.code for ended in case.evidence.exits if ended.code)
    return unstarted or any(code - 128 not in FROM_OUTSIDE for code in codes)


def node_of(hello: Hello, job: Job, nodes: Sequence[Node]) -> Node | None:
    """The node of a rank: as it said itself, else as `nodes`, one a rank, has it; None for a rank beyond them."""
    if hello.node is not None:
        return next((node for node in job.nodes if node.index == hello.node), None)
    return nodes[hello.rank] if hello.rank < len(nodes) else None


def owed(case: Case) -> list[str]:
    """What the run lacks of what it had to show, each in words; empty for a run that showed everything."""
    demand, evidence = case.job.demand, case.evidence
    ranks = range(demand.ranks)
    timed = {row.point for row in evidence.rows if row.operation == demand.operation and row.ranks == demand.ranks}
    checked = [evidence.checks.get(rank, {}) for rank in ranks]
    untimed = [point for point in demand.points if demand.measured and point not in timed]
    unchecked = [point for point in demand.points if not all(point in points for points in checked)]
    silent = [rank for rank in ranks if rank not in evidence.hellos]
    unfinished = [rank for rank in ranks if rank not in evidence.done]
    lacks = []
    if silent:
        lacks.append(f"{_some('rank', silent)} never reported")
    if demand.foreign and evidence.program_output:
        return [*lacks, *_foreign.lacks(demand, demand.foreign, evidence.program_output)]
    if unfinished:
        lacks.append(f"{_some('rank', unfinished)} did not reach the end")
    if untimed:
        lacks.append(f"no measurement of {demand.operation} at {_some('point', untimed)}")
    if unchecked:
        lacks.append(f"results not verified by every rank at {_some('point', unchecked)}")
    return lacks


def _some(what: str, items: Sequence[object], limit: int = 5) -> str:
    shown = ", ".join(map(str, items[:limit])) + (f" and {len(items) - limit} more" if len(items) > limit else "")
    return f"{what}{'s' * (len(items) > 1)} {shown}"


def failed(case: Case) -> bool:
    """Whether the run itself broke: a bad end, or less than it had to show. Scary text alone is no failure."""
    result, told = case.result, case.evidence.program_output
    if result.returncode != 0 or result.timed_out or result.interrupted or case.evidence.exits:
        return True
    return bool(owed(case) or (result.lost and told and told.exited))


def taken_away(case: Case) -> Signature | None:
    """What Slurm or Kubernetes says of the nodes it took, where that explains the run; None for another run.

    Both stop ranks by SIGTERM, and by SIGKILL seconds later: one that died otherwise did so by itself. What a launcher
    felt of nodes that were lost is no cause; where none was, a failure told before may be why somebody cancelled it.
    """
    signatures = case.evidence.signatures
    taken = next((one for one in signatures if one.key in TAKEN_AWAY), None)
    if taken is None or case.result.timed_out or case.result.interrupted is not None:
        return None
    stopped = {entry.name for entry in _BY_THEM}
    told = [one for one in signatures if not (one.kind is Kind.CRASH and one.signal in stopped)]
    itself = any(one.kind in (Kind.CRASH, Kind.OUT_OF_MEMORY) for one in told)
    if itself or any(ended.signal not in _BY_THEM for ended in killed(case)):
        return None
    return taken if case.result.lost or told[0] is taken else None


def unplugged(case: Case) -> Signature | None:
    """Return what a failed run's log says of an interface that a node lost, unless a rank crashed by itself.

    Ranks that wait for a peer behind it are no hang of theirs.
    """
    if not case.result.unplugged or case.result.interrupted is not None:
        return None
    ours = {entry.name for entry in FROM_OUTSIDE}
    signatures = case.evidence.signatures
    itself = any(one.kind in (Kind.CRASH, Kind.OUT_OF_MEMORY) and one.signal not in ours for one in signatures)
    return None if itself else next((one for one in signatures if one.key == LOST_INTERFACE), None)


def away(case: Case, cause: Signature | None) -> str:
    """Return `engine` or `stack` where a run failed because that was away, "" for every other run.

    A launcher was there when the job was planned; one that no exec finds any more, or that is not there after the run,
    has gone since. Ranks and their launcher may then fail in any way.
    """
    if case.result.launcher_gone and failed(case):
        return "stack"
    if cause is None:
        return ""
    if cause.key in _ENGINE_AWAY:
        return "engine"
    program = case.job.command.argv[0] if case.job.command.argv else ""
    gone = any(cause.primary_line.startswith(f"cannot start {program}: {why}") for why in _NO_LAUNCHER)
    return "stack" if gone and program.startswith("/") and not case.evidence.hellos else ""


def explanation(case: Case) -> Signature | None:
    """The signature that tells why the run failed, the first that agrees with how it ended; None for a good run.

    Nodes that were taken away explain it. A rank that died of a signal is explained by a crash, or by memory that ran
    out; so is a launcher, unless it fell over a rank that had failed. A time limit is explained by a crash that came
    before it, though not by one that stopping it has caused.
    """
    signatures = case.evidence.signatures
    if not failed(case) or not signatures:
        return None
    if cut_off := unplugged(case):
        return cut_off
    if case.result.timed_out or case.result.interrupted is not None:
        ours = {entry.name for entry in FROM_OUTSIDE}
        signatures = tuple(s for s in signatures if not (s.kind is Kind.CRASH and s.signal in ours))
        return next((s for s in signatures if s.kind is Kind.CRASH), next(iter(signatures), None))
    if taken := taken_away(case):
        return taken
    fell_over = (case.result.returncode or 0) < 0 and rank_failed_first(case, signatures[0])
    if killed(case) or (launcher_signal(case) is not None and not fell_over):
        deadly = (s for s in signatures if s.kind in (Kind.CRASH, Kind.OUT_OF_MEMORY))
        return next(deadly, signatures[0])
    return signatures[0]
