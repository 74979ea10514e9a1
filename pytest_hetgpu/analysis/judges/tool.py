"""Judge of external programs: whether the program is there, and the meaning of its exit."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.analysis.judges.base import FinishedRun, Judge, Precedence, RatedFinding
from pytest_hetgpu.model.verdict import Kind


class ToolJudge(Judge):
    """A cell is skipped if its nodes lack its program, or have a version that lacks what the cell asks for.

    An exit code with a meaning of its own becomes a finding. `DataJudge` reports wrong results, `CompletenessJudge`
    missing ones.
    """

    name = "tool"

    def evaluate(self, run: FinishedRun) -> Iterator[RatedFinding]:
        told = run.evidence.program
        if told is None:
            return
        if told.absent:
            yield self.finding(Kind.SKIPPED, told.absent, Precedence.OVERRIDING)
        if told.benchmark.unsearched and not told.benchmark.refuted:
            yield self.finding(Kind.UNKNOWN, told.benchmark.unsearched)
        exited = told.exit_meaning
        if exited and exited.kind not in (Kind.ERROR, Kind.WRONG_RESULT):
            yield self.finding(exited.kind, f"{told.tool}: {exited.why}")
        elif exited and exited.kind is Kind.ERROR:
            yield self.finding(Kind.ERROR, f"{told.tool}: {exited.why}", Precedence.INDIRECT)


class SoftwareJudge(Judge):
    """Under strict preflight such a warning is the verdict, as a warning before the start would have been."""

    name = "software"

    def evaluate(self, run: FinishedRun) -> Iterator[RatedFinding]:
        if run.job.demand.strict:
            for warning in run.evidence.incompatible:
                yield self.finding(Kind.MISSING_LIBRARY, f"a version does not fit: {warning}")
