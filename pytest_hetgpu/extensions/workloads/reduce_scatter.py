"""Sum over every rank, of which each gets one block."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import SplitSettings, SummedDtypes, SweepWorkload


class ReduceScatterSettings(SplitSettings):
    """Keys of a collective that sums and divides."""

    summed = True

    dtype: SummedDtypes = ("float32",)


class ReduceScatter(SweepWorkload):
    """A size is that of all blocks together, which every rank gives."""

    Settings = ReduceScatterSettings
    operation = "reduce_scatter"
    split = True
