"""What ranks do, and what they owe: a measurement and a check at every point."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Collection
from copy import copy
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from pytest_hetgpu.extensions.old_spellings import Renamed, take_over
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.messages import known, show
from pytest_hetgpu.model.records import Point
from pytest_hetgpu.model.sizes import parse_sizes, show_size

ITEM_BYTES = {"int8": 1, "uint8": 1, "int32": 4, "int64": 8, "float16": 2, "float32": 4, "float64": 8}
SUMMED = tuple(name for name in ITEM_BYTES if name != "float16")  # which MPI has no type for; it can be moved
# Every rank adds 1 or more, and what overflows is summed by each library in its own way.
MOST_SUMMED = {"int8": 127, "uint8": 255}
REDUCED_IN_PLACE = ("allreduce", "reduce")
"""What torch.distributed has in place only."""
PLACES = {"false": ("",), "true": ("in",), "both": ("", "in")}

Sizes = Annotated[
    tuple[int, ...],
    BeforeValidator(parse_sizes, json_schema_input_type=str | int | list[str | int]),
    Field(description="message sizes in bytes: 8..64M, [8, 1K, 1M], 4M"),
]


def _dtypes(choices: Collection[str]) -> BeforeValidator:
    def check(value: Any) -> tuple[str, ...]:
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not listed:
            raise ValueError(f"a dtype or a list of dtypes is needed here, not {show(value)} {known('', choices)}")
        for index, name in enumerate(listed):
            if not isinstance(name, str) or name not in choices:
                raise ValueError(f"unknown dtype {show(name)} {known(str(name), choices)}")
            if name in listed[:index]:
                raise ValueError(f"dtype {name!r} is listed twice")
        return tuple(listed)

    return BeforeValidator(check, json_schema_input_type=str | Annotated[list[str], Field(min_length=1)])


Dtypes = Annotated[tuple[str, ...], _dtypes(ITEM_BYTES)]
SummedDtypes = Annotated[tuple[str, ...], _dtypes(SUMMED)]
InPlace = Annotated[
    Literal["false", "true", "both"],
    BeforeValidator(lambda value: str(value).lower(), json_schema_input_type=bool | Literal["false", "true", "both"]),
    Field(description="both: each point twice"),
]

Memory = Annotated[
    Literal["host", "guarded", "device", "managed"],
    Field(description="guarded: the CPU may not touch what is sent; device, managed: an accelerator's"),
]
Backend = Annotated[
    Literal["gloo", "nccl", "mpi", "ucc"],
    Field(description="by torch.distributed over this backend, instead of MPI itself"),
]


class WorkloadSettings(BaseModel):
    """Keys that a workload of this kind takes in a matrix."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Repeated(WorkloadSettings):
    """Keys of workloads that are timed.

    All points are gone through `repeats` times, so that a disturbance does not meet all repeats of one. Five is what it
    takes to tell outliers, and to tell two runs apart by an exact test of ranks (p = 1/252; of four 1/70).
    """

    backend: Backend | None = None
    iterations: Annotated[int, Field(ge=1)] = 20
    warmup: Annotated[int, Field(ge=0)] = 5
    repeats: Annotated[int, Field(ge=1, le=1000, description="how often all points are gone through")] = 5

    def timing(self) -> tuple[str, ...]:
        """The arguments of a program that times."""
        return (
            *("--iterations", str(self.iterations)),
            *("--warmup", str(self.warmup)),
            *(("--repeats", str(self.repeats)) if self.repeats > 1 else ()),
        )


class Sweep(Repeated):
    """Keys of workloads that sweep message sizes in one launch."""

    summed: ClassVar[bool] = False

    sizes: Sizes = parse_sizes("8..4M")
    dtype: Dtypes = ("float32",)
    memory: Memory = "host"

    @model_validator(mode="after")
    def _whole_elements(self) -> Sweep:
        for dtype in self.dtype:
            for size in self.sizes:
                if size % ITEM_BYTES[dtype]:
                    raise ValueError(
                        f"size {show_size(size)} is not a whole number of {dtype} ({ITEM_BYTES[dtype]} bytes each)"
                    )
        return self


class Collective(Sweep):
    """Keys of collectives that MPI can do in place."""

    in_place: InPlace = "false"


class Summed(Collective):
    """Keys of collectives that sum."""

    summed = True

    dtype: SummedDtypes = ("float32",)


class Split(Collective):
    """Keys of collectives that divide every size among the ranks; by default sizes that 16 ranks can share."""

    sizes: Sizes = parse_sizes("64..4M")


class Workload(abc.ABC):
    """One kind of work. `operation` is its name in bandwidth definitions; `measured`: it owes timings of its points."""

    Settings: ClassVar[type[WorkloadSettings]] = WorkloadSettings
    operation: ClassVar[str]
    measured: ClassVar[bool] = True
    torch: ClassVar[bool] = False
    """Whether torch.distributed can do it."""
    backend: str = ""
    """The backend of torch.distributed that ranks use; "": they call MPI themselves."""

    foreign = Renamed("external")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        take_over(cls)

    def __init__(self, settings: WorkloadSettings) -> None:
        self.settings = settings

    @property
    def asked(self) -> str:
        """The backend that the matrix asks for, "" where it leaves that to the transport."""
        return getattr(self.settings, "backend", None) or ""

    def over(self, backend: str) -> Workload:
        """The same work by torch.distributed over a backend; over "" as it is."""
        other = copy(self)
        other.backend = backend
        return other

    @abc.abstractmethod
    def program(self) -> tuple[str, ...]:
        """File name in `programs/`, then its arguments."""

    def argv(self, interpreter: str, programs: str) -> tuple[str, ...]:
        """What each rank executes on a node with that Python, where our programs lie in the folder `programs`.

        Under mpi4py's runner an error that one rank does not catch ends the whole job, not that rank alone.
        """
        file, *arguments = self.program()
        runner = () if self.backend else ("-m", "mpi4py")
        return interpreter, *runner, f"{programs}/{file}", *arguments

    @abc.abstractmethod
    def points(self) -> tuple[Point, ...]:
        """What must be checked on every rank, and timed when `measured`."""

    def owed(self, ranks: int) -> tuple[Point, ...]:
        """The points of a world of so many ranks."""
        return self.points()

    def external(self, ranks: int) -> ExternalProgram | None:
        """What a program that is not ours has to show on so many ranks; None: ours do, and report it themselves."""
        return None

    def unsuitable(self, ranks: int) -> str | None:
        """Why this workload cannot run on so many ranks, None when it can."""
        return None

    def refuses(self, family: str) -> str | None:
        """Why this workload cannot run over transports of a family, None when it can."""
        return None


class SweepWorkload(Workload):
    """A workload whose program has the operation's name and takes sizes, dtypes and iterations.

    `paired`: ranks 2i and 2i+1 work together. `split`: a size is what all ranks have together, so it must be a multiple
    of `ranks x element size`.
    """

    Settings: ClassVar[type[WorkloadSettings]] = Sweep
    settings: Sweep
    torch: ClassVar[bool] = True
    paired: ClassVar[bool] = False
    split: ClassVar[bool] = False

    def program(self) -> tuple[str, ...]:
        sweep = self.settings
        by_torch = ("torch_sweep.py", *("--operation", self.operation), *("--backend", self.backend))
        return (
            *(by_torch if self.backend else (f"{self.operation}.py",)),
            *("--sizes", ",".join(map(str, sweep.sizes))),
            *("--dtypes", ",".join(sweep.dtype)),
            *(("--in-place", self._in_place) if self._in_place != "false" and not self.backend else ()),
            *(("--memory", sweep.memory) if sweep.memory != "host" else ()),
            *sweep.timing(),
        )

    def points(self) -> tuple[Point, ...]:
        places = ("in" if self.operation in REDUCED_IN_PLACE else "",) if self.backend else PLACES[self._in_place]
        swept = itertools.product(self.settings.dtype, self.settings.sizes, places)
        return tuple(Point(size, dtype, place) for dtype, size, place in swept)

    def unsuitable(self, ranks: int) -> str | None:
        if reason := self._unknown_place():
            return reason
        if self.paired and ranks % 2:
            return f"needs an even number of ranks, this placement has {ranks}"
        for dtype in self.settings.dtype:
            if self.settings.summed and ranks > MOST_SUMMED.get(dtype, ranks):
                return f"can sum {dtype} of at most {MOST_SUMMED[dtype]} ranks, this placement has {ranks}"
            share = ranks * ITEM_BYTES[dtype]
            uneven = [show_size(size) for size in self.settings.sizes if self.split and size % share]
            if uneven:
                more = f" and {len(uneven) - 5} more" if len(uneven) > 5 else ""
                return (
                    f"divides every size among {ranks} ranks: no multiple of {share} bytes ({ranks} {dtype}) "
                    f"{'are' if len(uneven) > 1 else 'is'} {', '.join(uneven[:5])}{more}"
                )
        return None

    def _unknown_place(self) -> str | None:
        """Why there is no such memory, or no such place for results, with what ranks call."""
        memory, place = self.settings.memory, self._in_place
        if self.backend and memory in ("guarded", "managed"):
            return f"has {memory} memory under MPI only, not under torch.distributed"
        if self.backend and place != "false" and (place == "both" or self.operation not in REDUCED_IN_PLACE):
            return f"cannot be in_place: {place} by torch.distributed, where only all-reduce and reduce are, and always"
        return None

    @property
    def _in_place(self) -> str:
        return self.settings.in_place if isinstance(self.settings, Collective) else "false"
