"""Rules in files: each row's example gives its key and outcome, and the files keep the form that is read fast."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import re2
import yaml

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.config.signature_rules.file import RuleFileShape
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine import rows
from pytest_hetgpu.extensions.signatures.engine.match_rule import MatchRule
from pytest_hetgpu.extensions.signatures.engine.rules import RuleParser

FILES = {name: rows.shipped_rows(name) for name in sorted(rows.names())}
ROWS = {row.id: (name, row) for name, file in FILES.items() for row in file.rows}
each_row = pytest.mark.parametrize("id_", ROWS)
each_file = pytest.mark.parametrize("name", FILES)

# Examples, and rows of other files that claim more about them: these files leave the text to the others.
STRONGER = {
    ("getopt-harmless-launcher", "slurm-bad-option"),
    ("torch-distributed-stalled", "horovod-stalled"),
}


def as_list(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def example(row: rows.RuleRow) -> tuple[str, ...]:
    return tuple(as_list(row.fields["example"]))


@cache
def spy(name: str) -> type[RuleParser]:
    """Return the parser of a file, which also notes the ids of the rows that match."""
    found = find("signatures", name, RuleParser)

    class Spy(found):  # type: ignore[valid-type, misc]
        def __init__(self) -> None:
            super().__init__()
            self.matched: list[tuple[str, Priority]] = []

        def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
            match: FailureMatch = super().build_match(rule, groups, line)
            self.matched.append((rule.id, match.priority))
            return match

    return Spy


def parse(name: str, lines: tuple[str, ...]) -> tuple[list[FailureMatch], list[tuple[str, Priority]]]:
    parser: Any = spy(name)()
    for number, line in enumerate(lines, 1):
        parser.feed(parse_line(line, number))
    return list(parser.finish()), parser.matched


@each_row
def test_the_example_gives_the_outcome_and_the_key_by_this_row(id_: str) -> None:
    name, row = ROWS[id_]
    fields = row.fields
    found, matched = parse(name, example(row))
    if "key" not in fields:
        assert not found
        return
    wanted = fields.get("example_kind", fields.get("kind", "error")), fields.get("example_key", fields["key"])
    assert [(match.signature.kind.value, match.signature.key) for match in found] == [wanted]
    assert id_ in [one for one, _ in matched]
    assert not re.search(r"[*?\[\]\s{}]", wanted[1])


@each_row
def test_the_pattern_is_re2s_and_both_engines_find_the_same(id_: str) -> None:
    _, row = ROWS[id_]
    options = re2.Options()
    options.log_errors = False
    assert any(trigger in line for trigger in row.triggers for line in example(row))
    for trigger in row.triggers:
        rule = row.rule(trigger)
        for pattern in filter(None, (rule.pattern, rule.then)):
            ours, theirs = re.compile(pattern), re2.compile(pattern, options)
            for line in example(row):
                found, same = ours.search(line), theirs.search(line)
                assert (found and found.groupdict()) == (same and same.groupdict())


@each_file
def test_a_file_is_valid_and_is_read_fast_as_yaml_reads_it(name: str) -> None:
    text = (rows.SHIPPED / f"{name}.yaml").read_text(encoding="utf-8")
    RuleFileShape.model_validate(yaml.safe_load(text))
    whole = yaml.load(text, Loader=yaml.BaseLoader)
    assert whole["source"]
    defaults = whole.get("defaults", {})
    expected = {id_: {**defaults, **row, "trigger": as_list(row["trigger"])} for id_, row in whole["rules"].items()}
    assert {row.id: {**row.fields, "trigger": list(row.triggers)} for row in FILES[name].rows} == expected
    parser = find("signatures", name, RuleParser)
    waits = [rule.within for row in FILES[name].rows for rule in map(row.rule, row.triggers) if rule.then]
    assert parser.context >= max(waits, default=0)


def test_ids_are_unique_and_begin_with_the_file() -> None:
    assert len(ROWS) == sum(len(file.rows) for file in FILES.values())
    assert all(id_.startswith(name.replace("_", "-")) for id_, (name, _) in ROWS.items())


def test_no_other_file_claims_more_about_an_example() -> None:
    stronger = set()
    for id_, (name, row) in ROWS.items():
        own = min((priority for _, priority in parse(name, example(row))[1]), default=Priority.CONSEQUENCE)
        for other in FILES:
            if other != name:
                stronger |= {(id_, found) for found, priority in parse(other, example(row))[1] if priority < own}
    assert stronger == STRONGER
