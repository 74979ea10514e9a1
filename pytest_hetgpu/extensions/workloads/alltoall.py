"""All-to-all: a block from every rank to every rank."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import SplitSettings, SweepWorkload


class Alltoall(SweepWorkload):
    """A size is the total that one rank sends."""

    Settings = SplitSettings
    operation = "alltoall"
    split = True
