"""All-reduce (sum) over every rank."""

from __future__ import annotations

from pytest_hetgpu.workloads.base import SweepWorkload


class Allreduce(SweepWorkload):
    """Host buffers, out of place."""

    operation = "allreduce"
    file = "allreduce.py"
