"""A block from every rank, all of them left on rank 0."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import SplitSettings, SweepWorkload


class Gather(SweepWorkload):
    """A size is that of all blocks together; ranks without a result verify that nothing has changed."""

    Settings = SplitSettings
    operation = "gather"
    split = True
