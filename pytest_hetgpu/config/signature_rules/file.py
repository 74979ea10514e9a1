"""Reader of a file of rules, with every error in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.config.matrix.diagnostics import Diagnostics
from pytest_hetgpu.config.matrix.source import SourceError, plain
from pytest_hetgpu.errors import KnowledgeError
from pytest_hetgpu.extensions.output_patterns import Expression
from pytest_hetgpu.extensions.shapes import Form, Name, Shape, Text, Variable, listed
from pytest_hetgpu.extensions.signatures.base import LogLine
from pytest_hetgpu.extensions.signatures.engine.match_rule import MatchRule, rule_of
from pytest_hetgpu.extensions.signatures.engine.own_rules import bounded, own_parser
from pytest_hetgpu.extensions.signatures.engine.rules import KEY_PART

# The bytes of a log are searched for triggers line by line. A short one would be found in most lines.
Trigger = Annotated[str, Form(r"^[^\r\n\x00]{3,200}$", "be a part of one line, of 3 to 200 characters")]
Line = Annotated[str, Form(r"^[^\r\n\x00]{0,1000}$", "be one line of at most 1000 characters")]
Key = Annotated[str, Form(r"^[^\s*?\[\]]{1,200}$", "hold no blanks and none of * ? [ ]")]
FailureKind = Literal[
    "slow",
    "network_failure",
    "timeout",
    "hang",
    "transport_unavailable",
    "missing_library",
    "gpu_arch_mismatch",
    "launch_failure",
    "out_of_memory",
    "wrong_result",
    "crash",
    "error",
]


class DefaultsShape(Shape):
    """Values for rules of this file that lack them."""

    kind: FailureKind = "error"
    fatal: Annotated[bool, Field(description="false: a run may survive the message")] = True


class SignatureRuleShape(Shape):
    """One rule: a text, and the failure that it means."""

    trigger: Annotated[
        tuple[Trigger, ...],
        BeforeValidator(listed, json_schema_input_type=Trigger | list[Trigger]),
        Field(min_length=1, max_length=100, description="fixed parts of the line, one of which it holds"),
    ]
    kind: FailureKind | None = None
    key: Annotated[Key | None, Field(description="WHAT@WHERE, with {group}s; a rule without one is harmless")] = None
    priority: Literal["cause", "relayed", "exit", "symptom", "unspecific", "stuck", "limit", "consequence"] = "cause"
    phase: Annotated[
        Literal["submitted", "starting", "connecting", "communicating", "finishing"] | None,
        Field(description="phase of a run in which the text is printed"),
    ] = None
    pattern: Annotated[Expression | None, Field(description="found in the line, as RE2 reads it")] = None
    then: Annotated[Expression | None, Field(description="found in one of the next lines")] = None
    within: Annotated[int, Field(ge=1, le=100, description="lines in which `then` is searched")] = 10
    quote_then: Annotated[bool, Field(description="the line of `then` is quoted")] = False
    detail: Text | None = None
    fatal: bool | None = None
    source: Annotated[Text, Field(description="the file or page of the program that prints the text")] = ""
    example: Annotated[
        tuple[Line, ...],
        BeforeValidator(listed, json_schema_input_type=Line | list[Line]),
        Field(min_length=1, max_length=100, description="real lines that the rule recognises"),
    ]
    example_key: Annotated[Key | None, Field(description="the key of the example, if `key` has groups")] = None
    example_kind: FailureKind | None = None


class RuleFileShape(Shape):
    """A file of rules, tried in this order; the first that fits a line takes it."""

    source: Text = ""
    defaults: DefaultsShape = DefaultsShape()
    definitions: Annotated[
        dict[Variable, Expression], Field(description="parts of patterns, which have them as %{NAME}")
    ] = {}
    rules: dict[Name, SignatureRuleShape]


def rule_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file of rules."""
    schema = RuleFileShape.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "pytest-hetgpu signatures"}


def read(path: Path) -> tuple[MatchRule, ...]:
    """Read the rules of a file. Raises KnowledgeError with every error found."""
    diagnostics = Diagnostics(str(path))
    try:
        tree = source.load(path)
        shape = RuleFileShape.model_validate(plain(tree))
    except SourceError as error:
        diagnostics.add(error.line, str(error))
    except ValidationError as error:
        diagnostics.invalid(error, tree, "", RuleFileShape)
    else:
        rules = tuple(rule for id_, row in shape.rules.items() for rule in _rules(id_, row, shape, tree, diagnostics))
        if not diagnostics:
            return rules
    raise KnowledgeError(diagnostics.listed())


def _rules(
    id_: str, row: SignatureRuleShape, file: RuleFileShape, tree: source.Node, diagnostics: Diagnostics
) -> Iterator[MatchRule]:
    """Yield the rules of a row, one per trigger, unless it has an error that its shape alone does not show."""
    given = row.model_dump(exclude_none=True, exclude={"trigger", "source", "example", "example_key", "example_kind"})
    fields = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
    fields = {"kind": file.defaults.kind, "fatal": str(file.defaults.fatal).lower(), **fields}
    line = _line(tree, id_)
    try:
        rules = [rule_of(id_, trigger, fields, file.definitions) for trigger in row.trigger]
        groups = {"trigger", *(name for rule in rules for name in _groups(rule))}
    except KeyError as error:
        diagnostics.add(line, f"rules.{id_}: a pattern has %{{{error.args[0]}}}, which is not in `definitions`")
        return
    except ValueError as error:
        diagnostics.add(line, f"rules.{id_}: {error}")
        return
    if unknown := next((name[1] for name in KEY_PART.finditer(row.key or "") if name[1] not in groups), None):
        diagnostics.add(line, f"rules.{id_}.key: no pattern has a group named {unknown}: (?P<{unknown}>...)")
    elif problem := _problem(rules, row):
        diagnostics.add(line, f"rules.{id_}.example: {problem}")
    yield from rules


def _groups(rule: MatchRule) -> Iterator[str]:
    """Yield the named groups of its patterns. Raises ValueError for a pattern that cannot be searched."""
    for pattern in filter(None, (rule.pattern, rule.then)):
        bounded(pattern)
        yield from re.findall(r"\(\?P<(\w+)>", pattern)


def _problem(rules: list[MatchRule], row: SignatureRuleShape) -> str:
    """Return why the example is none of the rule; an empty text if it is one."""
    parser = own_parser(tuple(rule if rule.key else rule._replace(key="harmless") for rule in rules))()
    for number, text in enumerate(row.example, 1):
        parser.feed(LogLine(text, number, whole=text))
    found = [match.signature.key for match in parser.finish()]
    if not found:
        return "the rule does not match it: the trigger and the pattern must be in one line"
    wanted = row.example_key or (row.key if row.key and "{" not in row.key else found[0])
    return "" if not row.key or found == [wanted] else f"its key is {', '.join(found)}, not {wanted}"


def _line(tree: source.Node, id_: str) -> int:
    rules = tree.entries["rules"] if isinstance(tree, source.Mapping) else tree
    return rules.lines[id_] if isinstance(rules, source.Mapping) else tree.line


def replaced(files: Mapping[Path, tuple[MatchRule, ...]]) -> tuple[MatchRule, ...]:
    """Return the rules of several files; a later rule replaces the earlier ones of its id."""
    last = {rule.id: path for path, rules in files.items() for rule in rules}
    return tuple(rule for path, rules in files.items() for rule in rules if last[rule.id] == path)
