"""Reduce-scatter: the sum over every rank, one block of it on each."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import SplitSettings, SummedDtypes, SweepWorkload


class ReduceScatterSettings(SplitSettings):
    """Keys of a collective that sums and divides."""

    summed = True

    dtype: SummedDtypes = ("float32",)


class ReduceScatter(SweepWorkload):
    """A size is the total of all blocks, which is every rank's input."""

    Settings = ReduceScatterSettings
    operation = "reduce_scatter"
    split = True
