"""A block from every rank, all of them left on every rank."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import SplitSettings, SweepWorkload


class Allgather(SweepWorkload):
    """A size is that of all blocks together."""

    Settings = SplitSettings
    operation = "allgather"
    split = True
