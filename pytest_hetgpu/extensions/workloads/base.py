"""The interface of workloads: the work of ranks, with a measurement and a check at every point."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Collection, Mapping
from copy import copy
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.messages import known, show
from pytest_hetgpu.model.metrics import of_operation
from pytest_hetgpu.model.old_spellings import KeepsOldNames, Renamed
from pytest_hetgpu.model.quantities import MetricKind, direction
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sizes import parse_sizes, show_size

ITEM_BYTES = {"int8": 1, "uint8": 1, "int32": 4, "int64": 8, "float16": 2, "float32": 4, "float64": 8}
SUMMED = tuple(name for name in ITEM_BYTES if name != "float16")  # MPI has no type for it; it can only be moved
# Every rank adds 1 or more, and each library handles an overflow in its own way.
MOST_SUMMED = {"int8": 127, "uint8": 255}
REDUCED_IN_PLACE = ("allreduce", "reduce")
"""Operations that torch.distributed has in place only."""
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
    """Keys that a workload of this kind accepts in a matrix."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class TimedSettings(WorkloadSettings):
    """Keys of timed workloads.

    All points are measured `repeats` times in turn, so that a disturbance does not hit all repeats of one. Five repeats
    suffice to detect outliers. They also suffice to distinguish two runs by an exact rank test (p = 1/252; four: 1/70).
    """

    backend: Backend | None = None
    iterations: Annotated[int, Field(ge=1)] = 20
    warmup: Annotated[int, Field(ge=0)] = 5
    repeats: Annotated[int, Field(ge=1, le=1000, description="how often all points are gone through")] = 5

    def timing(self) -> tuple[str, ...]:
        """Return the arguments of a program that times."""
        return (
            *("--iterations", str(self.iterations)),
            *("--warmup", str(self.warmup)),
            *(("--repeats", str(self.repeats)) if self.repeats > 1 else ()),
        )


class SweepSettings(TimedSettings):
    """Keys of workloads that sweep message sizes in one launch."""

    summed: ClassVar[bool] = False

    sizes: Sizes = parse_sizes("8..4M")
    dtype: Dtypes = ("float32",)
    memory: Memory = "host"

    @model_validator(mode="after")
    def _whole_elements(self) -> SweepSettings:
        for dtype in self.dtype:
            for size in self.sizes:
                if size % ITEM_BYTES[dtype]:
                    raise ValueError(
                        f"size {show_size(size)} is not a whole number of {dtype} ({ITEM_BYTES[dtype]} bytes each)"
                    )
        return self


class CollectiveSettings(SweepSettings):
    """Keys of collectives that MPI can do in place."""

    in_place: InPlace = "false"


class ReductionSettings(CollectiveSettings):
    """Keys of collectives that sum."""

    summed = True

    dtype: SummedDtypes = ("float32",)


class SplitSettings(CollectiveSettings):
    """Keys of collectives that divide every size among the ranks; by default sizes that 16 ranks can share."""

    sizes: Sizes = parse_sizes("64..4M")


class Workload(KeepsOldNames, abc.ABC):
    """One kind of work. `operation` is its name in bandwidth definitions. `measured`: its points must be timed."""

    Settings: ClassVar[type[WorkloadSettings]] = WorkloadSettings
    operation: ClassVar[str]
    measured: ClassVar[bool] = True
    counts_ranks: ClassVar[bool] = False
    """Whether its output is read per rank, so that the launcher must label it."""
    torch: ClassVar[bool] = False
    """Whether torch.distributed has the operation."""
    backend: str = ""
    """Backend of torch.distributed that ranks use; "" if they call MPI."""
    scalings: ClassVar[tuple[str, ...]] = ()
    """Kinds of a series over the number of ranks in which it can be measured: weak, strong."""
    figures: ClassVar[Mapping[str, str]] = {}
    """Units of the metrics that it reports beside its times."""
    scaling: str = ""
    """Kind of the series of its cell. weak: the matrix gives the problem of one rank; strong: that of all together."""

    foreign = Renamed("external")
    asked = Renamed("requested_backend")
    over = Renamed("with_backend")
    owed = Renamed("required_points")
    refuses = Renamed("unsuitable_transport")

    def __init__(self, settings: WorkloadSettings) -> None:
        self.settings = settings

    @property
    def requested_backend(self) -> str:
        """Return the backend in the matrix, "" if the transport decides."""
        return getattr(self.settings, "backend", None) or ""

    def with_backend(self, backend: str) -> Workload:
        """Return the same work by torch.distributed over a backend; "" changes nothing."""
        other = copy(self)
        other.backend = backend
        return other

    @property
    def traced(self) -> bool:
        """Return whether rank 0 reports a trace of a profiler."""
        return False

    @property
    def one_sided(self) -> bool | None:
        """Return whether its program communicates by MPI windows, and by nothing else; None if that is not known."""
        return False

    def with_scaling(self, kind: str) -> Workload:
        """Return the same work as a cell of a series of a kind."""
        other = copy(self)
        other.scaling = kind
        return other

    @abc.abstractmethod
    def program(self) -> tuple[str, ...]:
        """Return the file name in `programs/`, then its arguments."""

    def argv(self, interpreter: str, programs: str) -> tuple[str, ...]:
        """Return the command of each rank on a node with that Python and our programs in the folder `programs`.

        mpi4py's runner ends the whole job on an uncaught error of one rank.
        """
        file, *arguments = self.program()
        runner = () if self.backend else ("-m", "mpi4py")
        return interpreter, *runner, f"{programs}/{file}", *arguments

    @abc.abstractmethod
    def points(self) -> tuple[MessagePoint, ...]:
        """Return the points to check on every rank, and to time if `measured`."""

    def required_points(self, ranks: int) -> tuple[MessagePoint, ...]:
        """Return the required points in a world of so many ranks."""
        return self.points()

    def external(self, ranks: int) -> ExternalProgram | None:
        """Return the requirements for another project's program on so many ranks; None for our own programs."""
        return None

    def measured_operation(self, ranks: int) -> str:
        """Return the operation of the measured rows; for an external program its parser names it."""
        external = self.external(ranks)
        if external is None:
            return self.operation
        from pytest_hetgpu.extensions.readers.base import operation_of

        return operation_of(external)

    def metrics(self) -> Mapping[str, MetricKind] | None:
        """Return what it can measure, the telling metric first. None: names that only its run shows."""
        timed = of_operation(self.measured_operation(2)) if self.measured else {}
        return {name: MetricKind(unit, direction(unit)) for name, unit in {**timed, **self.figures}.items()}

    def unsuitable(self, ranks: int) -> str | None:
        """Return why this workload cannot run on so many ranks, None if it can."""
        return None

    def unsuitable_transport(self, family: str) -> str | None:
        """Return why this workload cannot run over transports of a family, None if it can."""
        return None


class SweepWorkload(Workload):
    """A workload over sizes, dtypes and iterations, whose program has the operation's name.

    `paired`: ranks 2i and 2i+1 work together. `split`: a size is the total of all ranks, so it must be a multiple of
    `ranks x element size`.
    """

    Settings: ClassVar[type[WorkloadSettings]] = SweepSettings
    settings: SweepSettings
    torch: ClassVar[bool] = True
    scalings: ClassVar[tuple[str, ...]] = ("weak",)
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

    def points(self) -> tuple[MessagePoint, ...]:
        places = ("in" if self.operation in REDUCED_IN_PLACE else "",) if self.backend else PLACES[self._in_place]
        swept = itertools.product(self.settings.dtype, self.settings.sizes, places)
        return tuple(MessagePoint(size, dtype, place) for dtype, size, place in swept)

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
        """Return why the memory, or the place of results, does not exist in the library that ranks call."""
        memory, place = self.settings.memory, self._in_place
        if self.backend and memory in ("guarded", "managed"):
            return f"has {memory} memory under MPI only, not under torch.distributed"
        if self.backend and place != "false" and (place == "both" or self.operation not in REDUCED_IN_PLACE):
            return f"cannot be in_place: {place} by torch.distributed, where only all-reduce and reduce are, and always"
        return None

    @property
    def _in_place(self) -> str:
        return self.settings.in_place if isinstance(self.settings, CollectiveSettings) else "false"
