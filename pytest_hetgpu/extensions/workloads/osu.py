"""OSU micro-benchmarks (5 to 7): one of its programs that print a table of sizes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath
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
from pytest_hetgpu.extensions.workloads.base import Sizes
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sizes import parse_sizes

_PAIR = re.compile(r"(latency|bw|bibw)(_mt|_mp)?(_persistent)?|(put|get|acc|cas|fop|get_acc)_(latency|bw|bibw)")
_PAIRS = re.compile(r"mbw_mr|multi_lat|(put|get)_(mbw|multi_lat)")
# These print one rank's block, but the definition counts the whole.
_BLOCKS = re.compile(r"(xccl_|nccl_|neighbor_)?i?(neighbor_)?(allgather|alltoall|gather|scatter)[vw]?(_persistent)?")
_COLLECTIVE = re.compile(
    r"(xccl_|nccl_|neighbor_)?i?(neighbor_)?(all(reduce|gather|toall)|gather|scatter|reduce(_scatter(_block)?)?|bcast)"
    r"[vw]?(_persistent)?"
)
_BARRIER = re.compile(r"i?barrier(_persistent)?")
_ONE_SIDED = re.compile(r"(put|get|acc|cas|fop|get_acc)_\w+")
_TYPES = {"int8": "mpi_char", "int32": "mpi_int", "float32": "mpi_float"}


class OsuSettings(ExternalSettings):
    """Keys of an OSU benchmark. `sizes` are the program's (`-m`): one block of allgather, alltoall, gather, scatter.

    `dtype` (`-T`) and `in_place` (`-l`) need 7.1. Without a dtype any is accepted.
    """

    program: Annotated[str, ProgramName(r"osu_\w+", "a program of OSU's like osu_allreduce")]
    sizes: Sizes = parse_sizes("8..1M")
    iterations: Times = 100
    warmup: Annotated[int, Field(ge=0)] = 10
    dtype: Literal["int8", "int32", "float32"] | None = None
    in_place: bool = False

    @property
    def name(self) -> str:
        """Return `allreduce` for `/opt/osu/osu_allreduce`."""
        return PurePosixPath(self.program).name.removeprefix("osu_")

    @model_validator(mode="after")
    def _can_be_read(self) -> OsuSettings:
        if not any(kind.fullmatch(self.name) for kind in (_PAIR, _PAIRS, _COLLECTIVE, _BARRIER)):
            raise ValueError(
                f"osu_{self.name} prints no table that is known (known: latency, bw, bibw, mbw_mr, multi_lat, put and "
                "get of one-sided, collectives, barrier); run it as a `command`"
            )
        doubled_sizes(f"osu_{self.name}", self.sizes)
        if self.check and _BARRIER.fullmatch(self.name):
            raise cannot_verify(f"osu_{self.name}")
        return self


class Osu(ExternalWorkload):
    """An OSU benchmark, checked with `-c`: rows without Pass are not passed. Point-to-point needs exactly 2 ranks."""

    Settings = OsuSettings
    settings: OsuSettings
    operation = "osu"
    reader = "osu"
    memory = "host"

    def command(self) -> tuple[str, ...]:
        asked = self.settings
        barrier = _BARRIER.fullmatch(asked.name)
        return (
            asked.program,
            *(() if barrier else ("-m", f"{asked.sizes[0]}:{asked.sizes[-1]}")),
            *("-i", str(asked.iterations), "-x", str(asked.warmup)),
            *(("-c",) if asked.check else ()),
            # Point-to-point programs of some releases have no -f, whose columns show the number of iterations.
            *(("-f",) if barrier or _COLLECTIVE.fullmatch(asked.name) else ()),
            *(("-T", _TYPES[asked.dtype]) if asked.dtype else ()),
            *(("-l",) if asked.in_place else ()),
            *asked.arguments,
        )

    def external(self, ranks: int) -> ExternalProgram:
        """Return the requirements; programs over NCCL or RCCL use MPI to start alone."""
        return replace(super().external(ranks), layer="nccl" if self._by_nccl else self.layer)

    def unsuitable_transport(self, family: str) -> str | None:
        if self._by_nccl and family != "nccl":
            return f"runs over nccl alone, whatever MPI does; the cell's transport is {family}"
        return super().unsuitable_transport(family)

    @property
    def _by_nccl(self) -> bool:
        return self.settings.name.startswith(("xccl_", "nccl_"))

    @property
    def one_sided(self) -> bool:
        return _ONE_SIDED.fullmatch(self.settings.name) is not None

    def points(self) -> tuple[MessagePoint, ...]:
        return self.required_points(1)

    def required_points(self, ranks: int) -> tuple[MessagePoint, ...]:
        asked = self.settings
        if _BARRIER.fullmatch(asked.name):
            return (MessagePoint(0, "none"),)
        blocks = ranks if _BLOCKS.fullmatch(asked.name) else 1
        return points(tuple(size * blocks for size in asked.sizes), asked.dtype or "", "in" if asked.in_place else "")

    def unsuitable(self, ranks: int) -> str | None:
        name = self.settings.name
        if _PAIR.fullmatch(name) and ranks != 2:
            return f"needs exactly 2 ranks for osu_{name}, this placement has {ranks}"
        if _PAIRS.fullmatch(name) and ranks % 2:
            return f"needs an even number of ranks for osu_{name}, this placement has {ranks}"
        if ranks < 2:
            return f"needs at least 2 ranks for osu_{name}, this placement has {ranks}"
        return None
