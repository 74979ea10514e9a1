"""Rank 0's data, a block of it for every rank."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import SplitSettings, SweepWorkload


class Scatter(SweepWorkload):
    """A size is that of all blocks together."""

    Settings = SplitSettings
    operation = "scatter"
    split = True
