"""Rules in files: each row's example gives its key and outcome, and the files keep the form that is read fast."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import re2
import yaml

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser
from pytest_hetgpu.extensions.signatures.engine import rows
from pytest_hetgpu.extensions.signatures.engine.rules import RuleParser

NAMES = sorted(rows.names())
FILES = {name: rows.shipped_rows(name) for name in NAMES}
ROWS = {row.id: (name, row) for name, file in FILES.items() for row in file.rows}
each_row = pytest.mark.parametrize("id_", ROWS)


def example(row: rows.Row) -> tuple[str, ...]:
    given = row.fields["example"]
    return (given,) if isinstance(given, str) else tuple(given)


def parse(name: str, lines: tuple[str, ...]) -> list[FailureMatch]:
    parser = find("signatures", name, LogParser)()  # type: ignore[type-abstract]
    for number, line in enumerate(lines, 1):
        parser.feed(parse_line(line, number))
    return list(parser.finish())


@each_row
def test_the_example_gives_the_outcome_and_the_key(id_: str) -> None:
    name, row = ROWS[id_]
    fields = row.fields
    found = [(match.signature.kind.value, match.signature.key) for match in parse(name, example(row))]
    kind = fields.get("example_kind", fields.get("kind", "error"))
    assert found == ([(kind, fields.get("example_key", fields["key"]))] if "key" in fields else [])
