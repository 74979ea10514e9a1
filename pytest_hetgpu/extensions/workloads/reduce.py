"""Sum over every rank, left on rank 0."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import ReductionSettings, SweepWorkload


class Reduce(SweepWorkload):
    """A size is one rank's buffer; ranks without a result verify that nothing has changed."""

    Settings = ReductionSettings
    operation = "reduce"
