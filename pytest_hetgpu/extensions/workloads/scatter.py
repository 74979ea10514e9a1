"""Scatter: a block of rank 0's data to every rank."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import SplitSettings, SweepWorkload


class Scatter(SweepWorkload):
    """A size is the total of all blocks."""

    Settings = SplitSettings
    operation = "scatter"
    split = True
