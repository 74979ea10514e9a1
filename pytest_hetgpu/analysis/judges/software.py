"""Judge of libraries that warned of a version that does not fit."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.analysis.judges.base import FinishedRun, Judge, RatedFinding
from pytest_hetgpu.model.verdict import Kind


class SoftwareJudge(Judge):
    """Under strict preflight such a warning is the verdict, as a warning before the start would have been."""

    name = "software"

    def evaluate(self, run: FinishedRun) -> Iterator[RatedFinding]:
        if run.job.demand.strict:
            for warning in run.evidence.incompatible:
                yield self.finding(Kind.MISSING_LIBRARY, f"a version does not fit: {warning}")
