"""What ranks do, and what they owe: a measurement and a check at every point."""

from __future__ import annotations

import abc
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from pytest_hetgpu.model import Point
from pytest_hetgpu.registry import known, show
from pytest_hetgpu.sizes import parse_sizes, show_size

ITEM_BYTES = {"int8": 1, "uint8": 1, "int32": 4, "int64": 8, "float32": 4, "float64": 8}

Sizes = Annotated[
    tuple[int, ...],
    BeforeValidator(parse_sizes, json_schema_input_type=str | int | list[str | int]),
    Field(description="message sizes in bytes: 8..64M, [8, 1K, 1M], 4M"),
]


def _dtypes(value: Any) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"a dtype or a list of dtypes is needed here, not {show(value)} {known('', ITEM_BYTES)}")
    for index, name in enumerate(listed):
        if not isinstance(name, str) or name not in ITEM_BYTES:
            raise ValueError(f"unknown dtype {show(name)} {known(str(name), ITEM_BYTES)}")
        if name in listed[:index]:
            raise ValueError(f"dtype {name!r} is listed twice")
    return tuple(listed)


Some = Annotated[list[str], Field(min_length=1)]
Dtypes = Annotated[tuple[str, ...], BeforeValidator(_dtypes, json_schema_input_type=str | Some)]


class WorkloadSettings(BaseModel):
    """Keys that a workload of this kind takes in a matrix."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Sweep(WorkloadSettings):
    """Keys of workloads that sweep message sizes in one launch."""

    sizes: Sizes = tuple(8 * 2**power for power in range(20))
    dtype: Dtypes = ("float32",)
    iterations: Annotated[int, Field(ge=1)] = 20
    warmup: Annotated[int, Field(ge=0)] = 5

    @model_validator(mode="after")
    def _whole_elements(self) -> Sweep:
        for dtype in self.dtype:
            for size in self.sizes:
                if size % ITEM_BYTES[dtype]:
                    raise ValueError(
                        f"size {show_size(size)} is not a whole number of {dtype} ({ITEM_BYTES[dtype]} bytes each)"
                    )
        return self


class Workload(abc.ABC):
    """One kind of work. `operation` is its name in bandwidth definitions; `measured`: it owes timings of its points."""

    Settings: ClassVar[type[WorkloadSettings]] = WorkloadSettings
    operation: ClassVar[str]
    measured: ClassVar[bool] = True

    def __init__(self, settings: WorkloadSettings) -> None:
        self.settings = settings

    @abc.abstractmethod
    def program(self) -> tuple[str, ...]:
        """File name in `programs/`, then its arguments."""

    @abc.abstractmethod
    def points(self) -> tuple[Point, ...]:
        """What must be checked on every rank, and timed when `measured`."""

    def unsuitable(self, ranks: int) -> str | None:
        """Why this workload cannot run on so many ranks, None when it can."""
        return None


class SweepWorkload(Workload):
    """A workload whose program takes sizes, dtypes and iterations."""

    Settings = Sweep
    settings: Sweep
    file: ClassVar[str]

    def program(self) -> tuple[str, ...]:
        sweep = self.settings
        return (
            self.file,
            *("--sizes", ",".join(map(str, sweep.sizes))),
            *("--dtypes", ",".join(sweep.dtype)),
            *("--iterations", str(sweep.iterations)),
            *("--warmup", str(sweep.warmup)),
        )

    def points(self) -> tuple[Point, ...]:
        return tuple(Point(size, dtype) for dtype in self.settings.dtype for size in self.settings.sizes)


def needs_pairs(ranks: int) -> str | None:
    """The reason that point-to-point workloads give for an odd world."""
    return f"needs an even number of ranks, this placement has {ranks}" if ranks % 2 else None
