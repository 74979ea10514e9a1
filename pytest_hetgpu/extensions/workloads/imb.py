"""Intel MPI Benchmarks (2018 to 2021): one benchmark of IMB-MPI1, IMB-NBC, IMB-RMA or IMB-P2P."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, model_validator

from pytest_hetgpu.extensions.workloads._external import (
    ExternalSettings,
    ExternalWorkload,
    ProgramName,
    Times,
    doubled_sizes,
    points,
)
from pytest_hetgpu.extensions.workloads.base import Sizes
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sizes import parse_sizes

_ALL_RANKS = "1000000"
_PAIR = re.compile(r"PingP[io]ng\w*|(Uni|Bi)dir_\w+")
_BLOCKS = ("allgather", "allgatherv", "alltoall", "alltoallv", "gather", "gatherv", "scatter", "scatterv")


class ImbSettings(ExternalSettings):
    """Keys of a benchmark. `sizes` are the program's (`-msglog`): powers of two; one process's block of allgather, ...

    `check: true` needs an IMB that was built with CHECK, which prints defects.
    """

    program: Annotated[str, ProgramName(r"IMB-(MPI1|NBC|RMA|P2P)", "IMB-MPI1, -NBC, -RMA or -P2P")] = "IMB-MPI1"
    benchmark: Annotated[str, Field(pattern=r"^[A-Z]\w*$", description="PingPong, Allreduce, Ibcast, ...")]
    sizes: Sizes = parse_sizes("8..1M")
    iterations: Times = 100

    @model_validator(mode="after")
    def _can_be_run(self) -> ImbSettings:
        doubled_sizes(self.program, self.sizes)
        if any(size & (size - 1) for size in self.sizes):
            raise ValueError(f"{self.program} measures powers of two only")
        return self


class Imb(ExternalWorkload):
    """A benchmark of IMB on all ranks."""

    Settings = ImbSettings
    settings: ImbSettings
    operation = "imb"
    reader = "imb"
    memory = "host"

    def command(self) -> tuple[str, ...]:
        asked = self.settings
        first, last = (size.bit_length() - 1 for size in (asked.sizes[0], asked.sizes[-1]))
        return (
            asked.program,
            asked.benchmark,
            *("-npmin", _ALL_RANKS),
            *(() if self._sizeless else ("-msglog", f"{first}:{last}")),
            *("-iter", str(asked.iterations), "-iter_policy", "off"),
            *asked.arguments,
        )

    @property
    def one_sided(self) -> bool:
        return self.settings.program.endswith("IMB-RMA")

    @property
    def _sizeless(self) -> bool:
        return "barrier" in self.settings.benchmark.lower()

    def points(self) -> tuple[MessagePoint, ...]:
        return self.required_points(1)

    def required_points(self, ranks: int) -> tuple[MessagePoint, ...]:
        if self._sizeless:
            return (MessagePoint(0, "none"),)
        blocks = ranks if self.measured_operation(ranks).removeprefix("i") in _BLOCKS else 1
        return points(tuple(size * blocks for size in self.settings.sizes), "")

    def row_ranks(self, ranks: int) -> int:
        return 2 if _PAIR.fullmatch(self.settings.benchmark) else ranks

    def unsuitable(self, ranks: int) -> str | None:
        return None if ranks > 1 else f"needs at least 2 ranks, this placement has {ranks}"
