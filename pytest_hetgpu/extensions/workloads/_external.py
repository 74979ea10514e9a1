"""Common parts of workloads with another project's program: its folders, its start and its output parser.

`remote/run_external.py` starts it on each rank, after the rank has reported itself and the MPI that the program
will load.
"""

from __future__ import annotations

import abc
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.workloads.base import Workload, WorkloadSettings
from pytest_hetgpu.model.external_program import PYTHON, ExternalProgram
from pytest_hetgpu.model.messages import show
from pytest_hetgpu.model.metrics import of_operation
from pytest_hetgpu.model.quantities import MetricKind, direction
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sizes import show_size


def _tokens(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or not all(isinstance(token, str) and "\0" not in token for token in value):
        raise ValueError(f"a list of words is needed here ([-x, 200]), not {show(value)}")
    if ":" in value or ":::" in value:
        raise ValueError("a word that is only ':' or ':::' cannot be handed on: launchers take it for their own")
    return tuple(value)


def _folders(value: Any) -> Any:
    listed = [value] if isinstance(value, str) else value
    for folder in listed if isinstance(listed, list) else ():
        if not isinstance(folder, str) or not folder.startswith("/"):
            raise ValueError(f"{show(folder)} must be an absolute path on the node (or a glob of such)")
    return listed


_Words = list[str | int | float | bool]
Tokens = Annotated[tuple[str, ...], BeforeValidator(_tokens, json_schema_input_type=_Words)]
Folders = Annotated[
    tuple[str, ...],
    BeforeValidator(_folders, json_schema_input_type=str | list[str]),
    Field(description="folders on the nodes, looked in before PATH; a glob will do"),
]
Times = Annotated[int, Field(ge=1)]


class ExternalSettings(WorkloadSettings):
    """Keys of all programs of other projects. `check: false` requires numbers only, and no verified results."""

    folders: Folders = ()
    arguments: Annotated[Tokens, Field(description="further options of the program, as it takes them")] = ()
    check: bool = True


class ExternalWorkload(Workload):
    """A workload with another project's program. `reader` names its output parser, `needs` the transport families.

    `layer` and `memory` are as in `ExternalProgram`.
    """

    Settings: ClassVar[type[WorkloadSettings]] = ExternalSettings
    settings: ExternalSettings
    reader: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    layer: ClassVar[str] = ""
    memory: ClassVar[str] = ""
    mpi4py: ClassVar[bool] = False
    scalings: ClassVar[tuple[str, ...]] = ("weak",)

    @abc.abstractmethod
    def command(self) -> tuple[str, ...]:
        """Return the program and its options.

        Placeholders: `{python}` is the interpreter of the node's stack. `{platform}` (cpu, cuda, rocm) and `{memory}`
        (host, cuda, rocm) are the node's. `{node0}` is the first node's address for other nodes.
        """

    def commands(self) -> tuple[tuple[str, ...], ...]:
        """Return the commands of rank 0, rank 1, and so on; the last one is for all further ranks."""
        return (self.command(),)

    def options(self) -> tuple[str, ...]:
        """Return further options of `remote/run_external.py`."""
        return ()

    def program(self) -> tuple[str, ...]:
        folders = itertools.chain.from_iterable(("--folder", folder) for folder in self.settings.folders)
        first, *others = self.commands()
        parts = itertools.chain.from_iterable((":::", *other) for other in others)
        mpi4py = ("--mpi4py",) * self.mpi4py
        return ("run_external.py", *folders, *mpi4py, *self.options(), "--", *first, *parts)

    def argv(self, interpreter: str, programs: str) -> tuple[str, ...]:
        file, *arguments = self.program()
        return interpreter, f"{programs}/{file}", *(token.replace(PYTHON, interpreter) for token in arguments)

    def with_backend(self, backend: str) -> Workload:
        """Return the same work: the program decides what its ranks use."""
        return self

    def external(self, ranks: int) -> ExternalProgram:
        return ExternalProgram(
            argv=self.command(),
            reader=self.reader,
            ranks=self.row_ranks(ranks),
            check=self.settings.check,
            layer=self.layer,
            memory=self.memory,
            iterations=getattr(self.settings, "iterations", 0),
        )

    def metrics(self) -> Mapping[str, MetricKind] | None:
        from pytest_hetgpu.extensions.readers.base import OutputParser

        printed = find("readers", self.reader, OutputParser).prints  # type: ignore[type-abstract]
        if printed is None or not self.points():
            return None if printed is None else {}
        every = {**of_operation(self.measured_operation(2)), **printed}
        return {name: MetricKind(unit, direction(unit)) for name, unit in every.items()}

    def row_ranks(self, ranks: int) -> int | None:
        """Return the ranks of its rows in a world of so many ranks; None if the program prints none."""
        return ranks

    def unsuitable_transport(self, family: str) -> str | None:
        if not self.needs or family in self.needs:
            return None
        return f"runs over {' or '.join(self.needs)} alone, whatever MPI does; the cell's transport is {family}"


@dataclass(frozen=True, slots=True)
class ProgramName:
    """A program by name or path, for `Annotated`; `words` describe it to a user."""

    name: str
    words: str

    def check(self, text: str) -> str:
        """Return the text if it names the program. Raises ValueError."""
        if not re.fullmatch(rf"(/[^\s:]+/)?{self.name}", text):
            raise ValueError(f"{show(text)} must be {self.words}, or an absolute path to it")
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self.check, handler(source))


def doubled_sizes(program: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes if each is twice the one before, as the program doubles by itself. Raises ValueError."""
    if any(larger != 2 * smaller for smaller, larger in itertools.pairwise(sizes)):
        shown = ", ".join(map(show_size, sizes[:5]))
        raise ValueError(f"{program} doubles sizes by itself: a range like 8..1M is needed, not {shown}")
    return sizes


def cannot_verify(who: str) -> ValueError:
    """Make the error for a program that must verify results and cannot."""
    return ValueError(f"{who} verifies nothing: with `check: false` only its output is required")


def points(sizes: tuple[int, ...], dtype: str, *places: str) -> tuple[MessagePoint, ...]:
    """Return a point per size and place; dtype "" accepts any."""
    return tuple(MessagePoint(size, dtype, place) for size in sizes for place in places or ("",))
