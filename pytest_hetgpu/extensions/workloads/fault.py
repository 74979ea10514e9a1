"""Deliberate failures, which the judges must distinguish."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pytest_hetgpu.extensions.workloads.base import Workload, WorkloadSettings
from pytest_hetgpu.model.records import MessagePoint

Fault = Literal[
    "none",
    "no-program",
    "no-interpreter",
    "missing-mpi",
    "other-mpi",
    "alone",
    "segfault",
    "abort",
    "kill",
    "exit",
    "hard-exit",
    "early-exit",
    "raise",
    "no-memory",
    "no-malloc",
    "fill-memory",
    "hang",
    "missing-library",
    "missing-module",
    "wrong-data",
    "flood",
    "slow",
    "cut",
]
INSIDE = ("segfault", "abort", "kill", "hard-exit", "early-exit", "raise", "no-memory", "hang")


class FaultSettings(WorkloadSettings):
    """`rank` fails, `before` it enters the collective or `in` its reduction."""

    fault: Fault = "none"
    rank: Annotated[int, Field(ge=0)] = 1
    when: Literal["before", "in"] = "before"

    @model_validator(mode="after")
    def _takes_place(self) -> FaultSettings:
        if self.when == "in" and self.fault not in INSIDE:
            raise ValueError(f"the fault {self.fault!r} takes no `when: in` (those that do: {', '.join(INSIDE)})")
        return self


class FaultWorkload(Workload):
    """A checked all-reduce of 1 KiB with one fault; not timed."""

    Settings = FaultSettings
    settings: FaultSettings
    operation = "fault"
    measured = False

    def program(self) -> tuple[str, ...]:
        asked = self.settings
        return "fault.py", "--fault", asked.fault, "--rank", str(asked.rank), "--when", asked.when

    def points(self) -> tuple[MessagePoint, ...]:
        return (MessagePoint(1024, "float32"),)

    def unsuitable(self, ranks: int) -> str | None:
        rank = self.settings.rank
        return f"fails on rank {rank}, this placement has only {ranks}" if rank >= ranks else None
