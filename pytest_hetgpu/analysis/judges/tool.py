"""What a foreign program is, and what its end says."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.analysis.judges.base import Case, Force, Judge, Opinion
from pytest_hetgpu.model.verdict import Kind


class Tool(Judge):
    """A cell whose program is not on its nodes is not run. An exit code that has a meaning of its own is told by it.

    Wrong results are `Data`'s to tell, and what is missing is `Completeness`'s.
    """

    name = "tool"

    def opinions(self, case: Case) -> Iterator[Opinion]:
        told = case.evidence.program_output
        if told is None:
            return
        if told.absent:
            yield self.says(Kind.SKIPPED, told.absent, Force.FINAL)
        exited = told.exited
        if exited and exited.kind not in (Kind.ERROR, Kind.WRONG_RESULT):
            yield self.says(exited.kind, f"{told.tool}: {exited.why}")
        elif exited and exited.kind is Kind.ERROR:
            yield self.says(Kind.ERROR, f"{told.tool}: {exited.why}", Force.VAGUE)
