"""All-reduce of one large payload, as used to tune training frameworks; its busbw is the number to compare."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pytest_hetgpu.extensions.workloads.base import ReductionSettings, Sizes, SweepWorkload
from pytest_hetgpu.model.sizes import parse_sizes


class AllreduceBandwidthSettings(ReductionSettings):
    """Keys as of `allreduce`, with other defaults: few trials of a large buffer."""

    sizes: Sizes = parse_sizes("64M")
    iterations: Annotated[int, Field(ge=1)] = 5
    warmup: Annotated[int, Field(ge=0)] = 1


class AllreduceBandwidth(SweepWorkload):
    """A size is one rank's buffer. Use `sizes: 4G` if every rank has a GPU of its own."""

    Settings = AllreduceBandwidthSettings
    operation = "allreduce"
