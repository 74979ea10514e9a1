"""Settings that describe the output of a program: patterns of RE2, and paths into JSON.

RE2 runs the patterns. Its time grows linearly with the line, so no pattern can hang a run. The named group `value` is
required. The optional ones are `unit`, `metric`, `size`, `dtype`, `operation`, `ranks`, `iterations` and `wrong`;
settings beside the pattern give the values of missing groups.

A path is names and list indices with dots between (`results.*.time`, `runs.0.gbps`). A `*` means every item of a list
or every value of a map.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Protocol, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.units import known
from pytest_hetgpu.model.messages import show
from pytest_hetgpu.model.program_output import OutputLine
from pytest_hetgpu.model.quantities import MetricKind, direction
from pytest_hetgpu.model.sizes import parse_size

_GROUPS = ("value", "unit", "metric", "size", "dtype", "operation", "ranks", "iterations", "wrong")
BENCHMARK_METRICS = ("latency", "bandwidth", "algbw", "busbw")
"""Metrics with a definition and a unit of ours."""
_LONGEST_PATTERN = 1000
_MOST_MEMORY = 8 << 20
_QUOTED_BEFORE, _LONGEST_QUOTE = 60, 200
_WITHOUT_RE2 = "patterns of a command need google-re2, which has no wheel for this machine"


class TextMatch(Protocol):
    """The required part of an RE2 match."""

    def start(self) -> int:
        """Return the index of the first matched character."""

    def groupdict(self) -> dict[str, str | None]:
        """Return the text of each named group."""


class Compiled(Protocol):
    """The required part of an RE2 pattern."""

    @property
    def groupindex(self) -> Mapping[str, int]:
        """Return the indices of named groups."""

    def search(self, text: str) -> TextMatch | None:
        """Return the first match; None if there is none."""


def utf8(text: str) -> str:
    """Return a text for RE2, which accepts UTF-8 only: half of a surrogate pair is not UTF-8."""
    return text.encode(errors="replace").decode()


def search_failure(pattern: Compiled, expression: str, line: OutputLine) -> str:
    """Describe what the pattern `failure` matches in a line or its hidden text; "" without a match."""
    for text in map(utf8, (*line.hidden.split("\r"), line.text or "")):
        if text and (found := pattern.search(text)):
            where = "" if line.rank is None else f" on rank {line.rank}"
            begin = max(0, found.start() - _QUOTED_BEFORE)
            return f"{show(expression)} was found{where}: {text[begin : begin + _LONGEST_QUOTE].strip()}"
    return ""


def compiled(pattern: str) -> Compiled:
    """Compile a pattern. Raises ValueError for an invalid pattern, and NotHere without RE2."""
    try:
        import re2
    except ImportError:
        raise NotHere(_WITHOUT_RE2) from None
    options = re2.Options()
    options.max_mem = _MOST_MEMORY
    options.log_errors = False
    try:
        return cast("Compiled", re2.compile(pattern, options))
    except re2.error as error:
        reason = error.args[0] if error.args else error
        detail = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise ValueError(f"{show(pattern)} is no RE2 pattern: {detail}") from None


def _checked(pattern: str) -> str:
    with contextlib.suppress(NotHere):  # another machine may have it; the parser of the output raises here
        compiled(pattern)
    return pattern


def _bytes(value: Any) -> Any:
    """Parse a size. Stored settings hold a number of bytes; 0 means that no data moves."""
    return parse_size(value) if isinstance(value, str) and value != "0" else value


Expression = Annotated[str, Field(min_length=1, max_length=_LONGEST_PATTERN)]
Path = Annotated[str, Field(pattern=r"^[^.\s]+(\.[^.\s]+)*$", max_length=200)]


class ReaderSettings(BaseModel):
    """Settings of a parser of program output."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Figures(ReaderSettings):
    """Default values for groups that a pattern, or a document, lacks.

    `better` is the direction of a number whose unit shows none. `repeats`: further numbers for a point are repeats, and
    their median counts.
    """

    metric: Annotated[str, Field(pattern=r"^\w*$", max_length=80)] = ""
    unit: str = ""
    size: Annotated[
        int,
        BeforeValidator(_bytes, json_schema_input_type=str | int),
        Field(ge=0, description="bytes, by the bandwidth definitions"),
    ] = 0
    dtype: Annotated[str, Field(pattern=r"^\w+$", max_length=80)] = "none"
    operation: str = ""
    better: Literal["lower", "higher"] | None = None
    repeats: bool = False

    @property
    def groups(self) -> Collection[str]:
        """Return the names of the groups that the output fills."""
        return ("value",)

    @property
    def kind(self) -> MetricKind:
        """Return unit and direction of its numbers, as reports have them."""
        unit = None if "unit" in self.groups else reported_unit(self.named, self.unit)
        return MetricKind(unit, self.better or direction(unit or ""))

    @property
    def named(self) -> str:
        """Return its metric: the name that is set, else one that the unit suggests."""
        return self.metric or metric_of(self.unit)


def metric_of(unit: str) -> str:
    """Return the metric of a number without a name."""
    found = known(unit)
    return {"s": "latency", "GB/s": "bandwidth"}.get(found[0] if found else "", "value")


def reported_unit(metric: str, unit: str) -> str:
    """Return the unit in which reports have a metric: us and GB/s for a benchmark's, else the user's own."""
    found = known(unit)
    shared = {"s": "us"}.get(found[0], found[0]) if found else unit
    return shared if metric in BENCHMARK_METRICS else unit


class Pattern(Figures):
    """A pattern whose matching lines have one number each."""

    pattern: Expression

    @field_validator("pattern")
    @classmethod
    def _has_a_value(cls, pattern: str) -> str:
        try:
            groups = compiled(pattern).groupindex
        except NotHere:
            return pattern
        if "value" not in groups:
            raise ValueError(f"{show(pattern)} has no group named value: (?P<value>[0-9.]+)")
        if unknown := sorted(set(groups) - set(_GROUPS)):
            raise ValueError(f"unknown group {unknown[0]!r} (known: {', '.join(_GROUPS)})")
        return pattern

    @property
    def groups(self) -> Collection[str]:
        try:
            return compiled(self.pattern).groupindex
        except NotHere:
            return _GROUPS


class Number(Figures):
    """Numbers at `path` of the JSON; `sizes` is a path to as many sizes."""

    path: Path
    sizes: Path | None = None


class CommandSettings(ReaderSettings):
    """Settings of a program whose output is parsed.

    The pattern `success` must be found in the output, and `failure` must not. `json_success` is a path to a value that
    must be true. `tests` is the form in which it prints results of tests. A failure on any rank counts. Success must be
    shown by one rank, or by each of them (`proof: each`).
    """

    patterns: tuple[Pattern, ...] = ()
    success: Expression | None = None
    failure: Expression | None = None
    json_success: Path | None = None
    json_numbers: tuple[Number, ...] = ()
    tests: Literal["tap", "unittest"] | None = None
    proof: Annotated[
        Literal["one", "each"],
        Field(description="the ranks that must show success: one of them, or each"),
    ] = "one"

    @property
    def figures(self) -> tuple[Figures, ...]:
        """Return the descriptions of its numbers, the telling one first."""
        return (*self.patterns, *self.json_numbers)

    @field_validator("success", "failure")
    @classmethod
    def _is_a_pattern(cls, pattern: str | None) -> str | None:
        return None if pattern is None else _checked(pattern)
