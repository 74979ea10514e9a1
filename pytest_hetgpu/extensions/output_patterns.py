"""How a user says what a program's output means: patterns of RE2, and paths into JSON.

Patterns are run by RE2, whose time grows with the line's length only: no pattern can hang a run. Named groups are
`value` (which must be there), `unit`, `metric`, `size`, `dtype`, `operation`, `ranks`, `iterations` and `wrong`; what
a pattern has no group for stands beside it. A path is names and list indices with dots between (`results.*.time`,
`runs.0.gbps`); `*` is every item of a list or every value of a map.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Annotated, Any, Protocol, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.model.messages import show
from pytest_hetgpu.model.sizes import parse_size

_GROUPS = ("value", "unit", "metric", "size", "dtype", "operation", "ranks", "iterations", "wrong")
_LONGEST_PATTERN = 1000
_MOST_MEMORY = 8 << 20
_WITHOUT_RE2 = "patterns of a command need google-re2, which has no wheel for this machine"


class TextMatch(Protocol):
    """As much of RE2's match as is needed."""

    def groupdict(self) -> dict[str, str | None]:
        """What each named group took."""


class Compiled(Protocol):
    """As much of RE2's pattern as is needed."""

    @property
    def groupindex(self) -> Mapping[str, int]:
        """Places of named groups."""

    def search(self, text: str) -> TextMatch | None:
        """The first match, None where there is none."""


def compiled(pattern: str) -> Compiled:
    """ValueError says what is wrong with a pattern; NotHere that there is no RE2."""
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
        said = error.args[0] if error.args else error
        raise ValueError(
            f"{show(pattern)} is no RE2 pattern: {said.decode(errors='replace') if isinstance(said, bytes) else said}"
        ) from None


def _checked(pattern: str) -> str:
    with contextlib.suppress(NotHere):  # another machine may have it; whoever reads the output says so here
        compiled(pattern)
    return pattern


def _bytes(value: Any) -> Any:
    """A size, or a number of bytes as stored settings hold it; 0 for what moves no data."""
    return parse_size(value) if isinstance(value, str) and value != "0" else value


Expression = Annotated[str, Field(min_length=1, max_length=_LONGEST_PATTERN)]
Path = Annotated[str, Field(pattern=r"^[^.\s]+(\.[^.\s]+)*$", max_length=200)]


class ReaderSettings(BaseModel):
    """Keys that a reader of foreign output takes."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Figures(ReaderSettings):
    """What stands for groups that a pattern, or a document, does not have."""

    metric: Annotated[str, Field(pattern=r"^\w*$", max_length=80)] = ""
    unit: str = ""
    size: Annotated[
        int,
        BeforeValidator(_bytes, json_schema_input_type=str | int),
        Field(ge=0, description="bytes, by the bandwidth definitions"),
    ] = 0
    dtype: Annotated[str, Field(pattern=r"^\w+$", max_length=80)] = "none"
    operation: str = ""


class Pattern(Figures):
    """A figure in each line that the pattern is found in."""

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


class Number(Figures):
    """Figures at `path` of the JSON; `sizes` is a path to as many sizes."""

    path: Path
    sizes: Path | None = None


class CommandSettings(ReaderSettings):
    """`success` must be found in the output, `failure` must not; `json_success` is a path whose value must be true."""

    patterns: tuple[Pattern, ...] = ()
    success: Expression | None = None
    failure: Expression | None = None
    json_success: Path | None = None
    json_numbers: tuple[Number, ...] = ()

    @field_validator("success", "failure")
    @classmethod
    def _is_a_pattern(cls, pattern: str | None) -> str | None:
        return None if pattern is None else _checked(pattern)
