"""nccl-tests and rccl-tests: all_reduce_perf and its kin, a rank a process with one or several GPUs each."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

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
from pytest_hetgpu.model.sizes import parse_sizes, show_size

# These round each rank's share down to whole 16 bytes (src/*.cu, `*GetCollByteCount`).
_DIVIDED = ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter", "hypercube")
_UNDIVIDED = ("all_reduce", "broadcast", "reduce", "sendrecv")
_SHARE = 16
# Operations whose in-place data is not checked.
_OUT_OF_PLACE = ("alltoall", "sendrecv")
_NAMES = {"float16": "half", "float32": "float", "float64": "double"}

Dtype = Literal["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"]


class NcclTestsSettings(ExternalSettings):
    """`sizes` are the definitions'; `gpus` are those of each thread, `threads` those of each process."""

    program: Annotated[str, ProgramName(r"\w+_perf(_mpi)?", "one like all_reduce_perf")] = "all_reduce_perf"
    sizes: Sizes = parse_sizes("1K..64M")
    iterations: Times = 20
    warmup: Annotated[int, Field(ge=0)] = 5
    dtype: Dtype = "float32"
    redop: Literal["sum", "prod", "min", "max", "avg"] | None = None
    gpus: Times = 1
    threads: Times = 1

    @property
    def name(self) -> str:
        """Return `all_reduce` for `/opt/nccl-tests/build/all_reduce_perf`."""
        return PurePosixPath(self.program).name.removesuffix("_mpi").removesuffix("_perf")

    @model_validator(mode="after")
    def _can_be_read(self) -> NcclTestsSettings:
        known = (*_UNDIVIDED, *_DIVIDED)
        if self.name not in known:
            raise ValueError(
                f"the sizes of {self.name}_perf cannot be foretold (known: {', '.join(known)}); run it as a `command`"
            )
        doubled_sizes(self.program, self.sizes)
        return self


class NcclTests(ExternalWorkload):
    """A program of nccl-tests, checked with `-c 1`. `#wrong` must be 0 in every required row, not N/A.

    NCCL or RCCL carries the data, independent of the MPI that starts it. Its log must show the channels.
    """

    Settings = NcclTestsSettings
    settings: NcclTestsSettings
    operation = "nccl_tests"
    reader = "nccl_tests"
    needs = ("nccl",)
    layer = "nccl"
    memory = "device"

    def command(self) -> tuple[str, ...]:
        asked = self.settings
        return (
            asked.program,
            *("-b", str(asked.sizes[0]), "-e", str(asked.sizes[-1]), "-f", "2"),
            *("-n", str(asked.iterations), "-w", str(asked.warmup)),
            *("-c", "1" if asked.check else "0"),
            *("-d", _NAMES.get(asked.dtype, asked.dtype)),
            *("-g", str(asked.gpus), "-t", str(asked.threads)),
            *(("-o", asked.redop) if asked.redop else ()),
            *asked.arguments,
        )

    def points(self) -> tuple[MessagePoint, ...]:
        places = ("",) if self.settings.name in _OUT_OF_PLACE else ("", "in")
        return points(self.settings.sizes, self.settings.dtype, *places)

    def row_ranks(self, ranks: int) -> int:
        return ranks * self.settings.gpus * self.settings.threads

    def unsuitable(self, ranks: int) -> str | None:
        if self.row_ranks(ranks) < 2:
            return "needs at least 2 GPUs (ranks x threads x gpus): one alone moves nothing"
        parts = self.row_ranks(ranks)
        share = parts * _SHARE
        uneven = [show_size(size) for size in self.settings.sizes if size % share]
        if self.settings.name in _DIVIDED and uneven:
            return (
                f"divides every size among {parts} ranks by whole {_SHARE} bytes: no multiple of {share} "
                f"bytes {'are' if len(uneven) > 1 else 'is'} {', '.join(uneven[:5])}"
            )
        return None
