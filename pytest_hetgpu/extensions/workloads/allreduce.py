"""All-reduce (sum) over every rank."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import ReductionSettings, SweepWorkload


class Allreduce(SweepWorkload):
    """A size is one rank's buffer."""

    Settings = ReductionSettings
    operation = "allreduce"
