"""What the output itself says of a failure."""

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
    placed,
    rank_failed_first,
    taken_away,
    unplugged,
)
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.verdict import Kind


class SignatureJudge(Judge):
    """Names the cause of a run that failed. The output of a run that did not may be as frightening as it likes."""

    name = "signature"

    def opinions(self, case: Case) -> Iterator[Opinion]:
        found = explanation(case)
        if found:
            yield self.says(found.kind, in_words(found), _force(case, found), found)


def in_words(signature: Signature) -> str:
    """`SIGSEGV@libuct.so!f in MPI_Send on rank 0: invalid permissions (line 23)`."""
    return f"{placed(signature)}: {signature.detail or signature.primary_line} (line {signature.line})"


def _force(case: Case, found: Signature) -> Force:
    """A text decides, unless something harder than text speaks for another kind.

    A time limit stays one unless a crash or the end of a rank came before it; a rank that died of a signal stays a
    crash unless memory ran out, a launcher unless a rank had failed; wrong data stay wrong data where the program
    merely complains of them. An exit code that has a meaning of its own is told by that, not by the launcher's words.
    """
    deadly = found.kind in (Kind.CRASH, Kind.OUT_OF_MEMORY)
    if found in (taken_away(case), unplugged(case)):
        return Force.FIRM
    died, first = bool(killed(case)), rank_failed_first(case, found)
    if case.result.timed_out:
        return Force.FIRM if found.kind is Kind.CRASH or (first and not died) else Force.VAGUE
    if died:
        return Force.FIRM if deadly else Force.VAGUE
    if launcher_signal(case) is not None:
        itself = (case.result.returncode or 0) < 0
        return Force.FIRM if deadly or (itself and first) else Force.VAGUE
    told = case.evidence.program_output
    if told and told.exited and told.exited.kind is not Kind.ERROR and found.key.startswith("exit@"):
        return Force.VAGUE
    wrong = case.evidence.wrong or any(any(points.values()) for points in case.evidence.checks.values())
    return Force.VAGUE if wrong and found.kind is Kind.ERROR else Force.FIRM
