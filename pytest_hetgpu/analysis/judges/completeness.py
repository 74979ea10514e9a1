"""Judge of completeness: whether the run came to its end with all results."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_hetgpu.analysis.judges.base import (
    FinishedRun,
    Judge,
    Precedence,
    RatedFinding,
    cause_of,
    ended_before,
    explains_death,
    killed_ranks,
    launcher_signal,
    lost_interface,
    missing_results,
    preempted,
    rank_failed_first,
    signal_name,
)
from pytest_hetgpu.extensions.launchers.base import Launcher
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.outcome import STOPPED
from pytest_hetgpu.model.verdict import Kind

_SURVIVOR = re.compile(r"(?P<name>.+) \(\d+\)(?: on .+)?")
_LENGTH = 15  # characters of a process's name that Linux keeps (TASK_COMM_LEN)


def outlasting_launchers(run: FinishedRun) -> tuple[str, ...]:
    """Return the survivors that are processes of a launcher: an ssh, a proxy, a daemon.

    They end after the launcher, and on a busy machine late. A program of the job with such a name is no launcher's. A
    process that even KILL did not end is not among them.
    """
    if not run.result.survivors:
        return ()
    started = {token.rpartition("/")[2] for token in run.job.command.argv[1:]}
    own = {name[:_LENGTH] for name in _launcher_processes() - started}
    found = ((one, _SURVIVOR.fullmatch(one)) for one in run.result.survivors)
    return tuple(one for one, match in found if match and match["name"][:_LENGTH] in own)


def _launcher_processes() -> frozenset[str]:
    launchers = (find("launchers", name, Launcher) for name in names("launchers"))  # type: ignore[type-abstract]
    return frozenset().union(*(launcher.processes for launcher in launchers))


def _is_verdict(signature: Signature) -> bool:
    """Return whether a signature comes from our own inspection of the ranks before they were stopped."""
    return signature.primary_line.startswith("hetgpu: ") and signature.kind in (Kind.HANG, Kind.TIMEOUT)


class CompletenessJudge(Judge):
    """Exit status and signals always count; so do all results that a run with a good exit lacks."""

    name = "completeness"

    def evaluate(self, run: FinishedRun) -> Iterator[RatedFinding]:
        result = run.result
        if result.interrupted is not None:
            yield self.finding(Kind.UNKNOWN, f"{STOPPED} ({result.interrupted})", Precedence.OVERRIDING)
        if result.spent:
            yield self._spent(run)
        elif result.timed_out:
            yield self._stuck(run)
        yield from self._killed(run)
        if result.unleased:
            hosts = ", ".join(result.unleased)
            why = f"the lease of {hosts} ended in the middle (the way there broke): others may have used it meanwhile"
            yield self.finding(Kind.NETWORK_FAILURE, why)
        if result.returncode is None and not result.timed_out:
            yield self.finding(Kind.ERROR, "the launcher left no exit status", Precedence.INDIRECT)
        elif result.returncode and not result.timed_out:
            yield self.finding(
                Kind.ERROR, f"the launcher ended with exit code {result.returncode}", Precedence.INDIRECT
            )
        yield from self._ranks(run)
        launchers = outlasting_launchers(run)
        if ranks := [one for one in result.survivors if one not in launchers]:
            survivors = ", ".join(ranks[:5])
            yield self.finding(
                Kind.ERROR, f"processes outlived their launcher and had to be stopped: {survivors}", Precedence.INDIRECT
            )
        lacks = missing_results(run)
        if lacks and result.left_out:
            why = (
                f"{result.left_out} bytes of its output were not kept (--hetgpu-output): missing results may be in them"
            )
            yield self.finding(Kind.UNKNOWN, why, Precedence.INDIRECT)
        for lack in lacks:
            unfinished = "never reported" in lack or "did not reach" in lack
            yield self.finding(Kind.ERROR if unfinished else Kind.UNKNOWN, lack, Precedence.INDIRECT)

    def _spent(self, run: FinishedRun) -> RatedFinding:
        """Judge a run that was stopped before its own time limit: no verdict, unless a failure was already there."""
        result, cause = run.result, cause_of(run)
        wrong = run.evidence.wrong or any(any(points.values()) for points in run.evidence.checks.values())
        sure = bool(killed_ranks(run) or wrong or (cause and cause.kind is Kind.CRASH))
        why = f"{result.spent}: no verdict after {result.seconds:.0f} s"
        return self.finding(Kind.UNKNOWN, why, Precedence.INDIRECT if sure else Precedence.OVERRIDING)

    def _stuck(self, run: FinishedRun) -> RatedFinding:
        """Judge a run that was stopped: by its stacks, else as a hang if it was silent for half of its time."""
        result = run.result
        cause = cause_of(run)
        explained = lost_interface(run) or rank_failed_first(run, cause) or (cause and ended_before(run, cause))
        precedence = Precedence.INDIRECT if explained else Precedence.DEFINITE
        told = next((one for one in run.evidence.signatures if _is_verdict(one)), None)
        if told:
            seen = "nothing moved" if told.kind is Kind.HANG else "not stuck"
            return self.finding(
                told.kind, f"stopped after {result.seconds:.0f} s, {seen}: {told.detail}", precedence, told
            )
        hang = result.quiet >= result.seconds / 2
        silence = (
            f"without output for the last {result.quiet:.0f} s" if hang else f"last output {result.quiet:.0f} s before"
        )
        why = f"stopped after {result.seconds:.0f} s, {silence}"
        return self.finding(Kind.HANG if hang else Kind.TIMEOUT, why, precedence)

    def _killed(self, run: FinishedRun) -> Iterator[RatedFinding]:
        """Yield a crash per death by a signal; indirect if memory, a library, Slurm or a rank's exit explains it."""
        explained = cause_of(run)
        told = explains_death(run, explained) or (explained is not None and explained.kind is Kind.OUT_OF_MEMORY)
        precedence = Precedence.INDIRECT if told or preempted(run) else Precedence.DEFINITE
        dead = killed_ranks(run)
        for ended in dead[:5]:
            yield self.finding(Kind.CRASH, f"rank {ended.rank} died of {signal_name(ended.signal or 0)}", precedence)
        number = launcher_signal(run)
        if number is not None and not dead:
            itself = (run.result.returncode or 0) < 0
            who = "the launcher died of" if itself else f"exit code {run.result.returncode}: a rank died of"
            precedence = Precedence.INDIRECT if itself and rank_failed_first(run, explained) else precedence
            yield self.finding(Kind.CRASH, f"{who} {signal_name(number)}", precedence)

    def _ranks(self, run: FinishedRun) -> Iterator[RatedFinding]:
        """Yield ranks with a bad exit in the launcher's output, even if the launcher itself exited with 0."""
        for ended in run.evidence.exits[:5]:
            if ended.code:
                called = "called MPI_Abort with" if ended.aborted else "ended with exit code"
                yield self.finding(Kind.ERROR, f"rank {ended.rank} {called} {ended.code}", Precedence.INDIRECT)
            elif ended.signal is None:
                how = "aborted" if ended.aborted else "ended without MPI_Finalize"
                yield self.finding(Kind.ERROR, f"rank {ended.rank} {how}", Precedence.INDIRECT)
