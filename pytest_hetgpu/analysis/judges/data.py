"""Whether the results are right."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.analysis.judges.base import Case, Judge, Opinion
from pytest_hetgpu.model.verdict import Kind


class Data(Judge):
    """Every rank verifies what it got; one wrong element is enough."""

    name = "data"

    def opinions(self, case: Case) -> Iterator[Opinion]:
        wrong = [
            f"rank {rank}: {count} wrong element{'s' * (count > 1)} at {point}"
            for rank, points in sorted(case.evidence.checks.items())
            for point, count in points.items()
            if count
        ]
        told = case.evidence.wrong[0] if case.evidence.wrong else wrong[0] if wrong else None
        if told:
            more = max(len(wrong), len(case.evidence.wrong)) - 1
            yield self.says(Kind.WRONG_RESULT, told + (f"; {more} more ranks or points" if more > 0 else ""))
