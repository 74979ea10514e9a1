"""ucc_perftest (UCC 1.5 and later): a collective of UCC, independent of the MPI that starts it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pytest_hetgpu.extensions.workloads._external import (
    ExternalSettings,
    ExternalWorkload,
    ProgramName,
    Times,
    cannot_verify,
    doubled_sizes,
    points,
)
from pytest_hetgpu.extensions.workloads.base import ITEM_BYTES, Sizes
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sizes import parse_sizes

_BLOCKS = ("allgather", "gather")

Collective = Literal[
    "allreduce", "allgather", "alltoall", "barrier", "bcast", "gather", "reduce", "reduce_scatter", "scatter"
]


class UccPerftestSettings(ExternalSettings):
    """Keys of ucc_perftest. `sizes` are the program's: one rank's source, which is a block of allgather and gather.

    It verifies nothing, so `check: false` is required.
    """

    program: Annotated[str, ProgramName("ucc_perftest", "ucc_perftest")] = "ucc_perftest"
    collective: Collective = "allreduce"
    sizes: Sizes = parse_sizes("64..1M")
    iterations: Times = 100
    warmup: Annotated[int, Field(ge=0)] = 10
    dtype: Literal["int8", "int32", "int64", "float16", "float32", "float64"] = "float32"
    memory: Annotated[str, Field(description="-m: host, cuda, rocm, ..., or {memory}")] = "host"
    in_place: bool = False

    @model_validator(mode="after")
    def _can_be_read(self) -> UccPerftestSettings:
        doubled_sizes("ucc_perftest", self.sizes)
        if self.check:
            raise cannot_verify("ucc_perftest")
        if self.sizes[0] % ITEM_BYTES[self.dtype]:
            raise ValueError(f"size {self.sizes[0]} is not a whole number of {self.dtype}")
        return self


class UccPerftest(ExternalWorkload):
    """A collective over transports of family ucc. UCC's own log shows the layer that carries its data."""

    Settings = UccPerftestSettings
    settings: UccPerftestSettings
    operation = "ucc_perftest"
    reader = "ucc_perftest"
    needs = ("ucc",)
    layer = "ucc"

    def command(self) -> tuple[str, ...]:
        asked, item = self.settings, ITEM_BYTES[self.settings.dtype]
        counts = ("-b", str(asked.sizes[0] // item), "-e", str(asked.sizes[-1] // item))
        return (
            *(asked.program, "-c", asked.collective),
            *(() if asked.collective == "barrier" else (*counts, "-d", asked.dtype, "-m", asked.memory)),
            *("-n", str(asked.iterations), "-w", str(asked.warmup), "-F"),
            *(("-i",) if asked.in_place else ()),
            *asked.arguments,
        )

    def points(self) -> tuple[MessagePoint, ...]:
        return self.required_points(1)

    def required_points(self, ranks: int) -> tuple[MessagePoint, ...]:
        asked = self.settings
        if asked.collective == "barrier":
            return (MessagePoint(0, "none"),)
        blocks = ranks if asked.collective in _BLOCKS else 1
        return points(tuple(size * blocks for size in asked.sizes), asked.dtype, "in" if asked.in_place else "")
