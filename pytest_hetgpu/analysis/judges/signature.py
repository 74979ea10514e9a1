"""Judge of signatures: the failure that the output itself explains."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.analysis.judges.base import (
    FinishedRun,
    Judge,
    Precedence,
    RatedFinding,
    cause_of,
    describe_signature,
    ended_before,
    explains_death,
    killed_ranks,
    launcher_signal,
    lost_interface,
    preempted,
    rank_failed_first,
    unverified_errors,
)
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.verdict import Kind


class SignatureJudge(Judge):
    """Names the cause of a run that failed.

    Alarming output of a run that did not fail is ignored, unless every rank logged an error and no result was verified.
    """

    name = "signature"

    def evaluate(self, run: FinishedRun) -> Iterator[RatedFinding]:
        found = cause_of(run)
        if found:
            yield self.finding(found.kind, describe(found), _precedence(run, found), found)
        elif doubt := unverified_errors(run):
            why = f"exit status 0, but ranks logged an error and no result was verified: {describe(doubt)}"
            yield self.finding(Kind.UNKNOWN, why, Precedence.INDIRECT, doubt)


def describe(signature: Signature) -> str:
    """Describe a signature: `SIGSEGV@libuct.so!f in MPI_Send on rank 0: invalid permissions (line 23)`."""
    return f"{describe_signature(signature)}: {signature.detail or signature.primary_line} (line {signature.line})"


def _precedence(run: FinishedRun, found: Signature) -> Precedence:
    """Return the precedence of a signature: definite, unless stronger evidence supports another kind.

    A time limit stays one unless a crash or the exit of a rank came before. A rank that died of a signal stays a crash
    unless memory ran out, or a library ended it and gave a reason. A dead launcher does unless a rank had failed.
    Wrong data stay wrong data if the program merely complains of them. An exit code with a meaning of its own precedes
    the launcher's message about it.
    """
    deadly = found.kind in (Kind.CRASH, Kind.OUT_OF_MEMORY)
    if found in (preempted(run), lost_interface(run)):
        return Precedence.DEFINITE
    died, first = bool(killed_ranks(run)), rank_failed_first(run, found)
    if run.result.timed_out:
        before = found.kind is Kind.CRASH or (first and not died) or ended_before(run, found)
        return Precedence.DEFINITE if before else Precedence.INDIRECT
    if died:
        return Precedence.DEFINITE if deadly or explains_death(run, found) else Precedence.INDIRECT
    if launcher_signal(run) is not None:
        itself = (run.result.returncode or 0) < 0
        return Precedence.DEFINITE if deadly or (itself and first) else Precedence.INDIRECT
    told = run.evidence.program
    if told and told.exit_meaning and told.exit_meaning.kind is not Kind.ERROR and found.key.startswith("exit@"):
        return Precedence.INDIRECT
    wrong = run.evidence.wrong or any(any(points.values()) for points in run.evidence.checks.values())
    return Precedence.INDIRECT if wrong and found.kind is Kind.ERROR else Precedence.DEFINITE
