"""mpi4py.bench, which every stack has that has mpi4py: pingpong, ringtest, helloworld."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pytest_hetgpu.extensions.workloads._external import (
    ExternalSettings,
    ExternalWorkload,
    Times,
    cannot_verify,
    doubled_sizes,
    points,
)
from pytest_hetgpu.extensions.workloads.base import Sizes
from pytest_hetgpu.model.external_program import PYTHON
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sizes import parse_sizes


class Mpi4pyBenchSettings(ExternalSettings):
    """Keys of mpi4py.bench. pingpong sweeps `sizes` without verification. A ringtest has one size, and verifies it."""

    benchmark: Literal["pingpong", "ringtest", "helloworld"] = "ringtest"
    sizes: Sizes | None = None
    iterations: Times = 100
    warmup: Annotated[int, Field(ge=0)] = 10

    @property
    def swept(self) -> tuple[int, ...]:
        """Return the sizes, by default those of the benchmark."""
        default = {"pingpong": "8..1M", "ringtest": "1K"}.get(self.benchmark)
        return self.sizes or (parse_sizes(default) if default else ())

    @model_validator(mode="after")
    def _can_be_checked(self) -> Mpi4pyBenchSettings:
        if self.benchmark == "pingpong":
            doubled_sizes("pingpong", self.swept)
        elif len(self.swept) > 1:
            raise ValueError(f"{self.benchmark} has one size, not {len(self.swept)}")
        if self.check and self.benchmark != "ringtest":
            raise cannot_verify(self.benchmark)
        return self


class Mpi4pyBench(ExternalWorkload):
    """Started under mpi4py's runner: an error that one rank does not catch ends the whole job."""

    Settings = Mpi4pyBenchSettings
    settings: Mpi4pyBenchSettings
    operation = "mpi4py_bench"
    reader = "mpi4py_bench"
    memory = "host"
    mpi4py = True

    def command(self) -> tuple[str, ...]:
        return PYTHON, "-m", "mpi4py", "-m", "mpi4py.bench", *self._benchmark(), *self.settings.arguments

    def _benchmark(self) -> tuple[str, ...]:
        asked, sizes = self.settings, self.settings.swept
        loops, skips = str(asked.iterations), str(asked.warmup)
        if asked.benchmark == "helloworld":
            return ("helloworld",)
        if asked.benchmark == "ringtest":
            return "ringtest", "-n", str(sizes[0]), "-l", loops, "-s", skips
        # By default it uses fewer for large messages.
        often = [("--loop", loops), ("--loop-large", loops), ("--loop-huge", loops)]
        often += [("--skip", skips), ("--skip-large", skips), ("--skip-huge", skips)]
        tokens = [token for option in often for token in option]
        return ("pingpong", "-m", str(sizes[0]), "-n", str(sizes[-1]), *tokens)

    def points(self) -> tuple[MessagePoint, ...]:
        return points(self.settings.swept, "uint8")

    def row_ranks(self, ranks: int) -> int:
        return min(ranks, 2) if self.settings.benchmark == "pingpong" else ranks

    def unsuitable(self, ranks: int) -> str | None:
        return None if ranks > 1 else f"needs at least 2 ranks, this placement has {ranks}"
