"""What a foreign program is, and what its end says."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.analysis.judges.base import FinishedRun, Judge, Precedence, RatedFinding
from pytest_hetgpu.model.verdict import Kind


class ToolJudge(Judge):
    """A cell whose program is not on its nodes is not run. An exit code that has a meaning of its own is told by it.

    Wrong results are `Data`'s to tell, and what is missing is `Completeness`'s.
    """

    name = "tool"

    def evaluate(self, run: FinishedRun) -> Iterator[RatedFinding]:
        told = run.evidence.program
        if told is None:
            return
        if told.absent:
            yield self.finding(Kind.SKIPPED, told.absent, Precedence.OVERRIDING)
        exited = told.exit_meaning
        if exited and exited.kind not in (Kind.ERROR, Kind.WRONG_RESULT):
            yield self.finding(exited.kind, f"{told.tool}: {exited.why}")
        elif exited and exited.kind is Kind.ERROR:
            yield self.finding(Kind.ERROR, f"{told.tool}: {exited.why}", Precedence.INDIRECT)
