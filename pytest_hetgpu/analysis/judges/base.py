"""Base class of judges, and the facts about a finished run that several judges need."""

from __future__ import annotations

import abc
import enum
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pytest_hetgpu.analysis.judges import _external
from pytest_hetgpu.extensions.runtimes.lookup import loss_of
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.job import Job, Node
from pytest_hetgpu.model.outcome import Evidence, Finding, RunResult
from pytest_hetgpu.model.records import Hello, RankExit
from pytest_hetgpu.model.verdict import Kind

_HIGHEST_NAMED_SIGNAL = 31
EXTERNAL_SIGNALS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})
"""Signals that stop a process from outside. After a time limit they come from us, not from a failing rank."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """One finished run as judges see it; `further` launches of the same job decide whether it is slow."""

    job: Job
    result: RunResult
    evidence: Evidence
    further: tuple[FinishedRun, ...] = ()


_BY_THEM = frozenset({signal.SIGTERM, signal.SIGKILL})
LOST_INTERFACE = "lost@interface"
"""Key of the signature of a node's interface that has gone since the node was made."""
_NO_ENGINE = "not-ready@engine"
"""Key of the signature of nodes that could not be made because their engine had gone."""
_NO_LAUNCHER = ("no such file", "Stale file handle", "Transport endpoint is not connected", "Input/output error")


class Precedence(enum.IntEnum):
    """Order in which findings decide, the strongest first."""

    REFUTED = 0
    """The program itself reports that its results are wrong, which no crash, exit or interruption makes untrue."""
    OVERRIDING = 1
    """Overrides all weaker findings: the run was cut short, or it ran in another communicator than requested."""
    DEFINITE = 2
    """A fact about the run; among several the worst kind decides."""
    INDIRECT = 3
    """A failure without its reason (an exit code, a silent rank); decides if nothing definite was found."""
    LOWEST = 4
    """Slowness of a sound run; decides if nothing else was found."""


@dataclass(frozen=True, slots=True)
class RatedFinding:
    """A finding with its precedence."""

    finding: Finding
    precedence: Precedence = Precedence.DEFINITE


class Judge(abc.ABC):
    """Looks at one side of a run."""

    name: ClassVar[str]

    @abc.abstractmethod
    def evaluate(self, run: FinishedRun) -> Iterator[RatedFinding]:
        """Yield findings, the most telling first; nothing if this side of the run is sound."""

    def finding(
        self, kind: Kind, why: str, precedence: Precedence = Precedence.DEFINITE, signature: Signature | None = None
    ) -> RatedFinding:
        """Return a finding of this judge; `why` is reduced to one line."""
        return RatedFinding(Finding(self.name, kind, " ".join(why.split()), signature), precedence)


def signal_name(number: int) -> str:
    """Return a signal's name: `SIGSEGV` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe_signature(signature: Signature) -> str:
    """Describe a signature with its call and ranks: `SIGSEGV@libuct.so!f in MPI_Send on rank 0`."""
    entry = f" in {signature.entry_point}" if signature.entry_point else ""
    ranks = ", ".join(map(str, signature.ranks[:5]))
    where = f" on rank{'s' * (len(signature.ranks) > 1)} {ranks}" if ranks else ""
    return f"{signature.key}{entry}{where}"


def killed_ranks(run: FinishedRun) -> tuple[RankExit, ...]:
    """Return ranks that died of a signal, as the launcher reports it.

    SIGTERM does not count if another rank ended by itself: the launcher then stops the rest. Signals from outside do
    not count after a time limit, an interruption, or a failure that the output names as the first.
    """
    stopped = run.result.timed_out or run.result.interrupted is not None or _failed_otherwise(run)
    exits = run.evidence.exits
    others = any(ended.aborted or ended.code or ended.signal not in (None, signal.SIGTERM) for ended in exits)
    return tuple(
        ended
        for ended in exits
        if ended.signal is not None
        and not (stopped and ended.signal in EXTERNAL_SIGNALS)
        and not (others and ended.signal == signal.SIGTERM)
    )


def _failed_otherwise(run: FinishedRun) -> bool:
    """Return whether the most telling failure in the output is neither a crash nor a lack of memory.

    A launcher that ends the other ranks after it may do so by SIGKILL, as srun and Hydra do.
    """
    signatures = run.evidence.signatures
    return bool(signatures) and signatures[0].kind not in (Kind.CRASH, Kind.OUT_OF_MEMORY)


def launcher_signal(run: FinishedRun) -> int | None:
    """Return the signal that killed the launcher, or that its exit status 128+N reports for a rank.

    Launchers also use such numbers for failures to start (131 and 135 of Open MPI 4, 183 of 5). So only numbers up to
    31 count, and only if ranks ran. An exit code of 129 of a rank is no SIGHUP: tools of UCX return -127 for
    wrong usage.
    """
    result = run.result
    if result.timed_out or result.interrupted is not None or result.signal is None:
        return None
    died_itself = (result.returncode or 0) < 0
    told_of_rank = bool(run.evidence.hellos) and result.signal <= _HIGHEST_NAMED_SIGNAL
    doubtful = result.signal in EXTERNAL_SIGNALS or run.evidence.proven
    told_of_rank = told_of_rank and not (doubtful and _failed_otherwise(run))
    hung_up = result.signal == signal.SIGHUP
    if not died_itself and hung_up and any(ended.code == result.returncode for ended in run.evidence.exits):
        return None
    return result.signal if died_itself or told_of_rank else None


def rank_failed_first(run: FinishedRun, cause: Signature | None) -> bool:
    """Return whether a rank failed before the run got stuck or its launcher died, which are then consequences.

    Either something could not be started or loaded and a rank never reported, or the launcher reports that a rank ended
    by itself. (PRRTE 3.0, the launcher of Open MPI 5.0, hangs, aborts or crashes if a rank ends while others connect.)
    """
    if cause is None:
        return False
    silent = len(run.evidence.hellos) < run.job.demand.ranks
    unstarted = silent and cause.kind in (Kind.LAUNCH_FAILURE, Kind.MISSING_LIBRARY)
    codes = (ended.code for ended in run.evidence.exits if ended.code)
    return unstarted or any(code - 128 not in EXTERNAL_SIGNALS for code in codes)


def node_of(hello: Hello, job: Job, nodes: Sequence[Node]) -> Node | None:
    """Return the node of a rank: as the rank reports, else from `nodes` (one per rank); None for a rank beyond them."""
    if hello.node is not None:
        return next((node for node in job.nodes if node.index == hello.node), None)
    return nodes[hello.rank] if hello.rank < len(nodes) else None


def missing_results(run: FinishedRun) -> list[str]:
    """Describe each missing result of a run; empty if the run is complete."""
    demand, evidence = run.job.demand, run.evidence
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
    if demand.external and evidence.program:
        ended = {one.rank for one in evidence.exits}
        unknown = [rank for rank in unfinished if rank in evidence.hellos and rank not in ended]
        if unknown:
            lacks.append(f"{_some('rank', unknown)} did not reach the end")
        return [*lacks, *_external.missing_results(demand, demand.external, evidence.program)]
    if unfinished:
        lacks.append(f"{_some('rank', unfinished)} did not reach the end")
    if untimed:
        lacks.append(f"no measurement of {demand.operation} at {_some('point', untimed)}")
    if unchecked:
        lacks.append(f"results not verified by every rank at {_some('point', unchecked)}")
    return lacks


def unverified_errors(run: FinishedRun) -> Signature | None:
    """Return the first error of a run that ended well if every rank logged one and nothing verified the results.

    Libraries log errors in good runs, too. So they count only if no result shows that the run survived them. The report
    of a crash counts from any rank.
    """
    demand, signatures = run.job.demand, run.evidence.signatures
    verified = _external.verifies(demand.external) if demand.external else bool(demand.points)
    if not signatures or verified or has_failed(run):
        return None
    ranks = {rank for signature in signatures for rank in signature.ranks}
    crashed = run.evidence.proven and signatures[0].kind is Kind.CRASH
    return signatures[0] if crashed or demand.ranks == 1 or ranks.issuperset(range(demand.ranks)) else None


def _some(what: str, items: Sequence[object], limit: int = 5) -> str:
    shown = ", ".join(map(str, items[:limit])) + (f" and {len(items) - limit} more" if len(items) > limit else "")
    return f"{what}{'s' * (len(items) > 1)} {shown}"


def has_failed(run: FinishedRun) -> bool:
    """Return whether the run itself broke: a bad exit or missing results. Alarming log lines alone are no failure."""
    result, told = run.result, run.evidence.program
    if result.returncode != 0 or result.timed_out or result.interrupted or run.evidence.exits:
        return True
    return bool(missing_results(run) or (result.lost and told and told.exit_meaning))


def preempted(run: FinishedRun) -> Signature | None:
    """Return the signature of the preemption that explains the run, None for another run.

    Schedulers stop ranks by SIGTERM, and by SIGKILL seconds later. A rank that died otherwise failed by
    itself. Errors that a launcher logs about lost nodes are no cause. If no node was lost, a failure before may be why
    someone cancelled the run.
    """
    signatures = run.evidence.signatures
    taken = next((one for one in signatures if loss_of(one.key)), None)
    if taken is None or run.result.timed_out or run.result.interrupted is not None:
        return None
    stopped = {entry.name for entry in _BY_THEM}
    told = [one for one in signatures if not (one.kind is Kind.CRASH and one.signal in stopped)]
    itself = any(one.kind in (Kind.CRASH, Kind.OUT_OF_MEMORY) for one in told)
    if itself or any(ended.signal not in _BY_THEM for ended in killed_ranks(run)):
        return None
    return taken if run.result.lost or told[0] is taken else None


def lost_interface(run: FinishedRun) -> Signature | None:
    """Return the signature of an interface that a node of a failed run lost, unless a rank crashed by itself.

    Ranks that wait for a peer behind that interface do not hang by themselves.
    """
    if not run.result.unplugged or run.result.interrupted is not None:
        return None
    ours = {entry.name for entry in EXTERNAL_SIGNALS}
    signatures = run.evidence.signatures
    itself = any(one.kind in (Kind.CRASH, Kind.OUT_OF_MEMORY) and one.signal not in ours for one in signatures)
    return None if itself else next((one for one in signatures if one.key == LOST_INTERFACE), None)


def explains_death(run: FinishedRun, found: Signature | None) -> bool:
    """Return whether a library ended a rank and gave a reason: its signal is that of which the rank died."""
    dead = {signal_name(ended.signal or 0) for ended in killed_ranks(run)}
    return found is not None and found.kind is not Kind.CRASH and found.signal in dead


def unavailable(run: FinishedRun, cause: Signature | None) -> str:
    """Return `engine` or `stack` if a run failed because that was unavailable, "" for every other run.

    The launcher existed when the job was planned. If exec does not find it any more, or it is absent after the run, it
    was removed since. Ranks and their launcher may then fail in any way.
    """
    if run.result.launcher_gone and has_failed(run):
        return "stack"
    if cause is None:
        return ""
    loss = loss_of(cause.key)
    if cause.key == _NO_ENGINE or (loss and loss.service):
        return "engine"
    program = run.job.command.argv[0] if run.job.command.argv else ""
    gone = any(cause.primary_line.startswith(f"cannot start {program}: {why}") for why in _NO_LAUNCHER)
    return "stack" if gone and program.startswith("/") and not run.evidence.hellos else ""


def ended_before(run: FinishedRun, found: Signature) -> bool:
    """Return whether a failure ended a rank before the run was stopped: the output proves it, and names it first."""
    first = run.evidence.signatures[:1]
    return run.evidence.proven and (found,) == first and found.kind not in (Kind.HANG, Kind.TIMEOUT)


def _cause_of_stopped(run: FinishedRun) -> Signature | None:
    """Return the failure that came before the end of the time, or what the stacks show; no signal that may be ours."""
    ours = {entry.name for entry in EXTERNAL_SIGNALS}
    signatures = tuple(
        one
        for one in run.evidence.signatures
        # The launcher reports our own signal, too.
        if not (one.kind is Kind.CRASH and one.signal in ours) and not one.key.startswith("interrupted@")
    )
    first = next(iter(signatures), None)
    if first and ended_before(run, first):
        return first
    return next((s for s in signatures if s.kind is Kind.CRASH), first)


def cause_of(run: FinishedRun) -> Signature | None:
    """Return the signature that explains the failure, the first that agrees with the exit; None for a good run.

    Nodes that were taken away explain a failure. A crash, or memory that ran out, explains a rank that died of a
    signal. It also explains a dead launcher, unless a rank had failed before.
    """
    signatures = run.evidence.signatures
    if not has_failed(run) or not signatures:
        return None
    if cut_off := lost_interface(run):
        return cut_off
    if run.result.timed_out or run.result.interrupted is not None:
        return _cause_of_stopped(run)
    if taken := preempted(run):
        return taken
    fell_over = (run.result.returncode or 0) < 0 and rank_failed_first(run, signatures[0])
    if killed_ranks(run) or (launcher_signal(run) is not None and not fell_over):
        deadly = (s for s in signatures if s.kind in (Kind.CRASH, Kind.OUT_OF_MEMORY) or explains_death(run, s))
        return next(deadly, signatures[0])
    return signatures[0]
