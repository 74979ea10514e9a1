"""`boundary.json`: the conditions of the failures of a run, for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pytest_hetgpu.analysis.boundary.space import Literal
from pytest_hetgpu.analysis.boundary.summary import Summary
from pytest_hetgpu.analysis.boundary.words import state_text, where
from pytest_hetgpu.reporting.boundary_lines import boundary_lines
from pytest_hetgpu.store.redaction.redact import redact_json

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class LiteralFields:
    """A part of a condition. `relation` is =, !=, in, >= or <=; only `in` has several values."""

    axis: str
    relation: str
    values: list[str]


@dataclass(frozen=True, slots=True)
class RequiredFields:
    """Ends of cells with other values of an axis, or `without it`: `passes`, `not run`, or keys of failures."""

    axis: str
    values: list[str]
    shown: list[str]


@dataclass(frozen=True, slots=True)
class ConditionFields:
    """A condition: `key` is null for any failure, `terms` are alternatives of parts that hold together.

    `summary` is the state in words, `facts` are the printed lines by their names. The numbers count cells.
    """

    key: str | None
    state: str
    further_runs: int
    summary: str
    where: str
    facts: dict[str, str]
    terms: list[list[LiteralFields]]
    matching: int
    run: int
    failing: int
    others: int
    failing_others: int
    required: list[RequiredFields]
    no_effect: dict[str, list[str]]
    rivals: list[list[LiteralFields]]
    not_tried: dict[str, str]


@dataclass(frozen=True, slots=True)
class BoundaryFile:
    """The whole file: the conditions by matrix."""

    schema: int
    matrices: dict[str, list[ConditionFields]]


def boundary_json(found: Mapping[str, Sequence[Summary]]) -> bytes:
    """Return the content of the file."""
    content = BoundaryFile(
        schema=SCHEMA, matrices={matrix: [_fields(one) for one in several] for matrix, several in found.items()}
    )
    return (json.dumps(redact_json(asdict(content)), indent=1) + "\n").encode()


def boundary_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the file."""
    from pydantic import TypeAdapter

    shape = TypeAdapter(BoundaryFile).json_schema()
    shape["properties"]["schema"] = {"const": SCHEMA}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **shape, "title": "boundary.json of a run"}


def _fields(one: Summary) -> ConditionFields:
    return ConditionFields(
        key=one.key or None,
        state=one.state,
        further_runs=one.further,
        summary=state_text(one),
        where=where(one),
        facts=dict(list(boundary_lines(one))[1:]),
        terms=[[_literal(literal) for literal in term] for term in one.terms],
        matching=one.support.matching,
        run=one.support.run,
        failing=one.support.failing,
        others=one.support.beyond,
        failing_others=one.support.failing_beyond,
        required=[
            RequiredFields(axis=each.axis, values=list(each.values), shown=list(each.shown)) for each in one.required
        ],
        no_effect={axis: list(values) for axis, values in one.no_effect},
        rivals=[[_literal(literal) for literal in term] for term in one.rivals],
        not_tried=dict(one.untried),
    )


def _literal(one: Literal) -> LiteralFields:
    return LiteralFields(axis=one.axis, relation=one.relation.value, values=list(one.values))
