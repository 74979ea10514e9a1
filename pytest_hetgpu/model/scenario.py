"""Nouns of a matrix: scenarios, and the expectations, exclusions and performance references of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_hetgpu.model.failure import Condition
from pytest_hetgpu.model.thresholds import PerformanceReference
from pytest_hetgpu.model.verdict import Kind


@dataclass(frozen=True, slots=True)
class Origin:
    """A position in a user's file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Expectation:
    """A known-bad cell. Empty `signatures` accepts any; a signature may be a glob.

    `known` is the id of a known failure that must match. If it is not `strict` the cell may pass. `frame`: a signature
    with a frame is met by the signal alone (`optional`) or not (`required`), if the system gives no frame.
    """

    kinds: tuple[Kind, ...]
    signatures: tuple[str, ...] = ()
    when: tuple[Condition, ...] = ()
    issue: str | None = None
    reason: str | None = None
    fixed_in: str | None = None
    remedy: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    origin: Origin | None = None
    known: str | None = None
    strict: bool = True
    frame: str = "required"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """The reason why a cell of the matrix does not run."""

    reason: str
    issue: str | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Scaling:
    """The series of a cell: its `name`, its `kind`, weak or strong, and the `ranks` of the cell.

    `metric` is the figure of a program that the matrix names, "" for a workload's own.
    """

    name: str
    kind: str
    ranks: int
    metric: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cell: one value per axis. `label` is `id`, prefixed with the matrix name if a run has several matrices.

    `scaling` is set for a cell of a series over the number of ranks.
    """

    matrix: str
    id: str
    label: str
    axes: tuple[str, ...]
    values: tuple[str, ...]
    expectations: tuple[Expectation, ...] = ()
    excluded: Exclusion | None = None
    references: tuple[PerformanceReference, ...] = ()
    scaling: Scaling | None = None

    def value(self, axis: str) -> str:
        """Return this cell's value on an axis, e.g. `value("transport")`. Raises KeyError for an unknown axis."""
        try:
            return self.values[self.axes.index(axis)]
        except ValueError:
            raise KeyError(axis) from None
