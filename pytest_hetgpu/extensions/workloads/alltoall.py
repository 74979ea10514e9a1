"""A block from every rank for every rank."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import SplitSettings, SweepWorkload


class Alltoall(SweepWorkload):
    """A size is what one rank sends to all."""

    Settings = SplitSettings
    operation = "alltoall"
    split = True
