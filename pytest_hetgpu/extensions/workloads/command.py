"""Any program: the matrix defines its required output and its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Annotated

from pydantic import Field, model_validator

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.output_patterns import CommandSettings, compiled
from pytest_hetgpu.extensions.shapes import Form
from pytest_hetgpu.extensions.workloads._external import ExternalSettings, ExternalWorkload, Tokens
from pytest_hetgpu.extensions.workloads.base import Workload
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.quantities import MetricKind
from pytest_hetgpu.model.records import MessagePoint


class CommandWorkloadSettings(ExternalSettings, CommandSettings):
    """Keys of any program. Every rank executes `argv`. `mpi: false`: it is no MPI program, and logs no transport.

    Over a transport of torch.distributed that is the default. `check: false`: its exit status alone decides.
    """

    argv: Annotated[
        Tokens, Field(min_length=1, description='[./app, --size, 8]; "{python}" is the stack\'s interpreter')
    ]
    mpi: bool | None = None
    junit: Annotated[
        Annotated[str, Form(r"^[^\x00\n]*\{rank\}[^\x00\n]*$", "be a path with {rank} in it")] | None,
        Field(description='JUnit file that it writes: "/tmp/results-{rank}.xml"; {rank} in `argv` is the same number'),
    ] = None

    @model_validator(mode="after")
    def _can_succeed(self) -> CommandWorkloadSettings:
        if self.junit and self.tests:
            raise ValueError("give `junit` (results in a file) or `tests` (results in the output), not both")
        if self.check and not (self.success or self.json_success or self.tests or self.junit):
            raise ValueError(
                "nothing proves that the program's results are right: give `success` (a pattern that must be found), "
                "`json_success`, `tests` or `junit`; with `check: false` only its exit status counts"
            )
        return self

    @property
    def expressions(self) -> tuple[str, ...]:
        """Return all patterns in it."""
        given = (self.success, self.failure, *(item.pattern for item in self.patterns))
        return tuple(pattern for pattern in given if pattern)


class CommandWorkload(ExternalWorkload):
    """A program of the user. It passes if it exits with 0, matches `success` and not `failure`, and prints its numbers.

    It has no required points, as its measurements are known only after the run.
    """

    Settings = CommandWorkloadSettings
    settings: CommandWorkloadSettings
    operation = "command"
    reader = "command"
    measured = False
    counts_ranks = True
    scalings = ("weak", "strong")

    def with_backend(self, backend: str) -> Workload:
        """Return the program without MPI if the transport is one of torch.distributed and the matrix names no `mpi`."""
        if not backend or self.settings.mpi is not None:
            return self
        other = copy(self)
        other.settings = self.settings.model_copy(update={"mpi": False})
        return other

    @property
    def one_sided(self) -> bool | None:
        return False if self.settings.mpi is False else None

    def command(self) -> tuple[str, ...]:
        return (*self.settings.argv, *self.settings.arguments)

    def options(self) -> tuple[str, ...]:
        junit = ("--junit", self.settings.junit) if self.settings.junit else ()
        return (*junit, *(() if self.settings.mpi else ("--no-mpi",)))

    def points(self) -> tuple[MessagePoint, ...]:
        return ()

    def external(self, ranks: int) -> ExternalProgram:
        asked = {name: getattr(self.settings, name) for name in CommandSettings.model_fields}
        if self.settings.junit:
            asked["tests"] = "tap"  # as `remote/junit_results.py` prints the file
        told = CommandSettings.model_construct(**asked).model_dump_json(exclude_defaults=True)
        # Its patterns hold the requirements, not its points.
        return replace(super().external(ranks), settings=told, check=False, proof=self.settings.mpi is not False)

    def metrics(self) -> Mapping[str, MetricKind] | None:
        given = self.settings.figures
        if any(
            {"metric", "operation"} & {*item.groups} or (not item.metric and "unit" in item.groups) for item in given
        ):
            return None
        operations = [{other.operation for other in given if other.named == item.named} for item in given]
        return {
            f"{item.operation}_{item.named}".strip("_") if len(several) > 1 else item.named: item.kind
            for item, several in zip(given, operations, strict=True)
        }

    def row_ranks(self, ranks: int) -> int | None:
        return None

    def unsuitable(self, ranks: int) -> str | None:
        for pattern in self.settings.expressions:
            try:
                compiled(pattern)
            except NotHere as error:
                return str(error)
        return None
