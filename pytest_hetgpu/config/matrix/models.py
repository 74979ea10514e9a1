"""The shapes of a matrix file. Its validation and its published schema are made from them.

Scalars reach these models as source text. Numbers are parsed here, and an environment value `6.10` stays `6.10`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions import registry
from pytest_hetgpu.extensions.registry import names
from pytest_hetgpu.extensions.shapes import NAME, Bytes, Env, Form, Name, Shape, Text, Texts, Value, Variable, listed
from pytest_hetgpu.extensions.stacks.base import stack_names
from pytest_hetgpu.model.failure import Condition, KnownFailure
from pytest_hetgpu.model.job import Exclusion, Expectation, Origin
from pytest_hetgpu.model.messages import known, show
from pytest_hetgpu.model.sizes import parse_size
from pytest_hetgpu.model.thresholds import SPEEDS, TOLERANCE
from pytest_hetgpu.model.verdict import Kind

BAD_KINDS = tuple(kind.value for kind in Kind if kind not in (Kind.PASSED, Kind.SKIPPED))
# The facts that `requires` accepts as FACT=VALUE.
FACTS = ("platform", "arch", "fabric", "runtime")


def choice(family: str, noun: str) -> AfterValidator:
    """Return a validator for names of an extension type, for `Annotated`; `noun` is its noun in messages."""

    def check(name: str) -> str:
        # Only tests use the fake runtime, and they construct it themselves.
        choices = stack_names() if family == "stacks" else [found for found in names(family) if found != "fake"]
        if name not in choices:
            raise ValueError(f"unknown {noun} {show(name)} {known(name, choices)}")
        try:
            registry.check(family, name)
        except UsageError as error:
            raise ValueError(str(error)) from None
        return name

    return AfterValidator(check)


def _kind(name: str) -> str:
    if name not in BAD_KINDS:
        raise ValueError(f"unknown outcome {show(name)} {known(name, BAD_KINDS, len(BAD_KINDS))}")
    return name


def _requirement(text: str) -> str:
    name, equals, value = text.partition("=")
    if equals and name not in FACTS:
        raise ValueError(f"unknown fact {show(name)} {known(name, FACTS)}")
    if not re.fullmatch(NAME.pattern, value if equals else name):
        raise ValueError(f"{show(text)} must be a capability, or a fact like platform=rocm")
    return text


EVERY = "*"
_MISSPELT = 0.85


def _every(value: Any) -> Any:
    """Return one number as that of every size."""
    return {EVERY: value} if isinstance(value, str) else value


def _size_or_every(value: Any) -> int:
    return 0 if value == EVERY else parse_size(value)


def _whose(value: Any) -> Any:
    if isinstance(value, dict) and value:
        return value
    if not isinstance(value, str) or value not in SPEEDS:
        raise ValueError(f"{show(value)} is neither {' nor '.join(SPEEDS)} nor a map like {{transport: ob1-tcp}}")
    return value


def _share(value: Any) -> float:
    """Parse `10%` or `10` as 0.1."""
    if isinstance(value, float):
        return value
    text = value.strip() if isinstance(value, str) else ""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text, re.ASCII)
    if not match or not float(match[1]) < 100:
        raise ValueError(f"{show(value)} is not a percentage from 0% to less than 100%, like 10%")
    if 0 < float(match[1]) < 1 and not match[2]:
        raise ValueError(f"{show(value)} may be a share or a percentage: write {float(match[1]) * 100:g}% or {text}%")
    return float(match[1]) / 100


def _alone(value: Any) -> Any:
    if not isinstance(value, (dict, list)):
        raise ValueError(f"a map or a list of maps is needed here, not {show(value)}")
    return [value] if isinstance(value, dict) else value


# Launchers pass it to a shell on the other nodes.
Device = Annotated[str, Form(r"^[A-Za-z0-9_][A-Za-z0-9_.:@+~-]*$", "be one device: letters, digits and _ . : @ + ~ -")]
# Open MPI puts parameters into the command line of its daemons, where a shell on the other node reads them between ".
_Parameter = Annotated[
    Value, Form(r"""^[^\x00-\x1f\x7f"$`\\]*$""", 'hold no control character, and none of " $ ` \\, which shells read')
]
Mca = dict[Variable, _Parameter]
# A YAML number in place of a text means its source text.
Scalar = str | int | float | bool
Pattern = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    BeforeValidator(listed, json_schema_input_type=Scalar | Annotated[list[Scalar], Field(min_length=1)]),
]
Kinds = Annotated[
    tuple[Annotated[str, AfterValidator(_kind)], ...],
    Field(min_length=1),
    BeforeValidator(listed, json_schema_input_type=str | Annotated[list[str], Field(min_length=1)]),
]
Size = Annotated[int, BeforeValidator(_size_or_every)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Numbers = Annotated[
    dict[Size, Positive],
    Field(min_length=1),
    BeforeValidator(_every, json_schema_input_type=Positive | Annotated[dict[str, Positive], Field(min_length=1)]),
]
Others = Annotated[dict[Name, Name], Field(min_length=1)]
Whose = Annotated[
    Literal["fabric", "wire"] | Others,
    BeforeValidator(_whose, json_schema_input_type=Literal["fabric", "wire"] | Others),
]
_Written = Annotated[str, Field(pattern=r"^\s*[0-9]+(\.[0-9]+)?\s*%\s*$")] | Annotated[float, Field(ge=1, lt=100)]
Percent = Annotated[float, BeforeValidator(_share, json_schema_input_type=_Written | Literal[0])]
Link = Annotated[str, Form(r"^https?://\S+$", "be a link that starts with https:// or http://")]
Requirement = Annotated[str, AfterValidator(_requirement)]


class ReferenceShape(Shape):
    """The expected speed of a cell: numbers, or a fraction of the speed of fabric, wire or another cell.

    Every further key is a metric of the workload, with its numbers by size. `references.py` checks their names.
    """

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            # A name of no key is that of a metric.
            "oneOf": [
                {"required": ["of"]},
                {"not": {"propertyNames": {"enum": ["where", "of", "fraction", "min_size", "tolerance"]}}},
            ],
            "dependentRequired": {"fraction": ["of"]},
        },
    )
    __pydantic_extra__: dict[str, Numbers]

    of: Annotated[Whose | None, Field(description="fabric, wire, or {AXIS: VALUE}: the cell that has other values")] = (
        None
    )
    fraction: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    min_size: Annotated[Bytes | None, Field(description="smaller sizes are not held against it")] = None
    tolerance: Percent | None = None

    @property
    def metrics(self) -> Mapping[str, Mapping[int, float]]:
        """Return the numbers of each metric by size (0: every size)."""
        return self.model_extra or {}

    @model_validator(mode="before")
    @classmethod
    def _no_misspelt_key(cls, value: Any) -> Any:
        fields = tuple(cls.model_fields)
        for key in (key for key in (value if isinstance(value, dict) else ()) if key not in fields):
            if difflib.get_close_matches(str(key), fields, 1, _MISSPELT):
                raise ValueError(f"unknown key {show(key)} {known(key, fields)}")
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> ReferenceShape:
        if bool(self.metrics) is bool(self.of):
            raise ValueError("give either numbers (latency: 9.5), or of: fabric, wire or {AXIS: VALUE}")
        if self.metrics and "fraction" in self.model_fields_set:
            raise ValueError("a fraction needs `of`: of what it is")
        if self.min_size and any(0 not in numbers for numbers in self.metrics.values()):
            raise ValueError("min_size is for one number for every size, or for `of`")
        return self


class ReferenceRuleShape(ReferenceShape):
    """The expected speed of the cells that the rule names."""

    where: dict[Name, Pattern] = Field(min_length=1)


class Options(Shape):
    """Settings that a value of any axis may carry."""

    env: Env = {}
    mca: Mca = {}
    ranks_per_node: Annotated[int, Field(ge=1, le=4096)] = 1
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False, description="seconds")] | None = None
    launcher: Annotated[str, choice("launchers", "launcher")] = "mpirun"
    stack: Annotated[str, choice("stacks", "stack")] | None = None
    requires: Annotated[
        tuple[Requirement, ...],
        BeforeValidator(listed, json_schema_input_type=str | list[str]),
        Field(description="capabilities of every node, or facts: large-bar, platform=rocm"),
    ] = ()
    tolerance: Annotated[Percent, Field(description="allowed loss against the reference or baseline")] = TOLERANCE
    reference: Annotated[
        tuple[ReferenceShape, ...],
        Field(min_length=1),
        BeforeValidator(
            _alone, json_schema_input_type=ReferenceShape | Annotated[list[ReferenceShape], Field(min_length=1)]
        ),
    ] = ()


class PlacementShape(Options):
    """A placement with settings of its own. A placement without them is a list of hardware names."""

    nodes: Annotated[tuple[Name, ...], Field(min_length=1)]
    launch_from: Annotated[Name, Field(description="hardware of a node without ranks that starts the job")] | None = (
        None
    )
    master: Annotated[Name, Field(description="hardware of the node that MASTER_ADDR names; else the first")] | None = (
        None
    )


class RuleShape(Shape):
    """The cells of a rule, and its reason."""

    reason: Text | None = None
    issue: Link | None = None


class ExcludeShape(RuleShape):
    """Cells that are not run, with the reason for the reports."""

    reason: Annotated[Text, Field(min_length=1)]
    where: dict[Name, Pattern] = Field(min_length=1)

    def exclusion(self, origin: Origin) -> Exclusion:
        """Convert to an Exclusion."""
        return Exclusion(self.reason, self.issue, origin)


class RemedyShape(Shape):
    """Settings that cure a known failure."""

    env: Env = {}
    mca: Mca = {}


class ExpectShape(RuleShape):
    """Cells that are known to fail, and how: an outcome, a known failure, or both."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["outcome"]}, {"required": ["known"]}]})

    where: dict[Name, Pattern] = Field(min_length=1)
    outcome: Kinds | None = None
    known: Annotated[Name, Field(description="the id of a known failure")] | None = None
    signature: Texts = ()
    when: dict[Name, Text] = {}
    fixed_in: Text | None = None
    remedy: RemedyShape | None = None
    strict: Annotated[bool, Field(description="false: fails now and then, so that a pass is ok")] = True
    frame: Annotated[
        Literal["required", "optional"],
        Field(description="optional: if the system gives no frame of a crash, the signal alone meets the signature"),
    ] = "required"

    def expectation(self, origin: Origin, known: KnownFailure | None = None) -> Expectation:
        """Convert to an Expectation; the known failure gives the values that are not set here."""
        remedy: Mapping[str, Mapping[str, str]] = self.remedy.model_dump() if self.remedy else {}
        return Expectation(
            kinds=tuple(Kind(name) for name in self.outcome or BAD_KINDS),
            signatures=self.signature,
            when=tuple(Condition(fact, wanted) for fact, wanted in self.when.items()),
            issue=self.issue or (known.url if known else None),
            reason=self.reason or (known.title if known else None),
            fixed_in=self.fixed_in or (known.fixed_in if known else None),
            remedy=remedy or (known.settings if known else {}),
            origin=origin,
            known=self.known,
            strict=self.strict,
            frame=self.frame,
        )
