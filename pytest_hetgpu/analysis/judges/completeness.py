"""Whether the run came to its end, and showed all that it owed."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.analysis.judges.base import (
    Case,
    Force,
    Judge,
    Opinion,
    explanation,
    killed,
    launcher_signal,
    owed,
    rank_failed_first,
    signal_name,
    taken_away,
    unplugged,
)
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.verdict import Kind


def _is_verdict(signature: Signature) -> bool:
    """Whether it is what our own look at the ranks came to, before they were stopped."""
    return signature.primary_line.startswith("hetgpu: ") and signature.kind in (Kind.HANG, Kind.TIMEOUT)


class Completeness(Judge):
    """Exit status and signals always count; so does everything that is missing from a run that ended well."""

    name = "completeness"

    def opinions(self, case: Case) -> Iterator[Opinion]:
        result = case.result
        if result.interrupted is not None:
            yield self.says(Kind.ERROR, f"cut short by {result.interrupted}: no verdict", Force.FINAL)
        if result.spent:
            yield self._spent(case)
        elif result.timed_out:
            yield self._stuck(case)
        yield from self._killed(case)
        if result.unleased:
            hosts = ", ".join(result.unleased)
            why = f"the lease of {hosts} ended in the middle (the way there broke): others may have used it meanwhile"
            yield self.says(Kind.NETWORK_FAILURE, why)
        if result.returncode is None and not result.timed_out:
            yield self.says(Kind.ERROR, "the launcher left no exit status", Force.VAGUE)
        elif result.returncode and not result.timed_out:
            yield self.says(Kind.ERROR, f"the launcher ended with exit code {result.returncode}", Force.VAGUE)
        yield from self._ranks(case)
        if result.survivors:
            survivors = ", ".join(result.survivors[:5])
            yield self.says(
                Kind.ERROR, f"processes outlived their launcher and had to be stopped: {survivors}", Force.VAGUE
            )
        lacks = owed(case)
        if lacks and result.left_out:
            why = f"{result.left_out} bytes of its output were not kept (--hetgpu-output): what it owes may be in them"
            yield self.says(Kind.UNKNOWN, why, Force.VAGUE)
        for lack in lacks:
            unfinished = "never reported" in lack or "did not reach" in lack
            yield self.says(Kind.ERROR if unfinished else Kind.UNKNOWN, lack, Force.VAGUE)

    def _spent(self, case: Case) -> Opinion:
        """A run that was stopped before its own time was over: no verdict, but for a failure that was there already."""
        result, cause = case.result, explanation(case)
        wrong = case.evidence.wrong or any(any(points.values()) for points in case.evidence.checks.values())
        sure = bool(killed(case) or wrong or (cause and cause.kind is Kind.CRASH))
        why = f"{result.spent}: no verdict after {result.seconds:.0f} s"
        return self.says(Kind.UNKNOWN, why, Force.VAGUE if sure else Force.FINAL)

    def _stuck(self, case: Case) -> Opinion:
        """A run that was stopped: what its stacks tell, else a hang if it was silent for half of its time."""
        result = case.result
        explained = unplugged(case) or rank_failed_first(case, explanation(case))
        force = Force.VAGUE if explained else Force.FIRM
        told = next((one for one in case.evidence.signatures if _is_verdict(one)), None)
        if told:
            seen = "nothing moved" if told.kind is Kind.HANG else "not stuck"
            return self.says(told.kind, f"stopped after {result.seconds:.0f} s, {seen}: {told.detail}", force, told)
        hang = result.quiet >= result.seconds / 2
        silence = (
            f"without output for the last {result.quiet:.0f} s" if hang else f"last output {result.quiet:.0f} s before"
        )
        why = f"stopped after {result.seconds:.0f} s, {silence}"
        return self.says(Kind.HANG if hang else Kind.TIMEOUT, why, force)

    def _killed(self, case: Case) -> Iterator[Opinion]:
        """A crash, but for a death that memory or Slurm explains, or a launcher's that the end of a rank explains."""
        explained = explanation(case)
        memory = explained is not None and explained.kind is Kind.OUT_OF_MEMORY
        force = Force.VAGUE if memory or taken_away(case) else Force.FIRM
        dead = killed(case)
        for ended in dead[:5]:
            yield self.says(Kind.CRASH, f"rank {ended.rank} died of {signal_name(ended.signal or 0)}", force)
        number = launcher_signal(case)
        if number is not None and not dead:
            itself = (case.result.returncode or 0) < 0
            who = "the launcher died of" if itself else f"exit code {case.result.returncode}: a rank died of"
            force = Force.VAGUE if itself and rank_failed_first(case, explained) else force
            yield self.says(Kind.CRASH, f"{who} {signal_name(number)}", force)

    def _ranks(self, case: Case) -> Iterator[Opinion]:
        """Ranks that the launcher says ended badly, though it may have ended well itself."""
        for ended in case.evidence.exits[:5]:
            if ended.code:
                called = "called MPI_Abort with" if ended.aborted else "ended with exit code"
                yield self.says(Kind.ERROR, f"rank {ended.rank} {called} {ended.code}", Force.VAGUE)
            elif ended.signal is None:
                how = "aborted" if ended.aborted else "ended without MPI_Finalize"
                yield self.says(Kind.ERROR, f"rank {ended.rank} {how}", Force.VAGUE)
