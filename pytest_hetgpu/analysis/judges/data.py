"""Whether the results are right."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.analysis.judges.base import FinishedRun, Judge, Precedence, RatedFinding
from pytest_hetgpu.model.verdict import Kind


class DataJudge(Judge):
    """Checks of the received data by every rank; one wrong element is enough, and so is the program's own report."""

    name = "data"

    def evaluate(self, run: FinishedRun) -> Iterator[RatedFinding]:
        wrong = [
            f"rank {rank}: {count} wrong element{'s' * (count > 1)} at {point}"
            for rank, points in sorted(run.evidence.checks.items())
            for point, count in points.items()
            if count
        ]
        program = run.evidence.program
        if program and program.benchmark.refuted:
            yield self.finding(Kind.WRONG_RESULT, f"{program.tool}: {program.benchmark.refuted}", Precedence.REFUTED)
            return
        told = run.evidence.wrong[0] if run.evidence.wrong else wrong[0] if wrong else None
        if told:
            more = max(len(wrong), len(run.evidence.wrong)) - 1
            others = f"; {more} more ranks, points or repeats" if more > 0 else ""
            yield self.finding(Kind.WRONG_RESULT, told + others)
