"""All-gather: blocks of every rank, all of them on every rank."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import SplitSettings, SweepWorkload


class Allgather(SweepWorkload):
    """A size is the total of all blocks."""

    Settings = SplitSettings
    operation = "allgather"
    split = True
