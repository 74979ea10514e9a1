"""Matches of one parser, or several, in a text."""

from __future__ import annotations

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.model.failure import Signature


def matches(parser: str, text: str) -> list[FailureMatch]:
    reader = find("signatures", parser, LogParser)()  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        reader.feed(parse_line(line, number))
    return list(reader.finish())


def parse_all(text: str, *parsers: str) -> list[Signature]:
    return list(by_priority(match for parser in parsers for match in matches(parser, text)))


def kind_and_key(match: FailureMatch) -> str:
    return f"{match.signature.kind.value} {match.signature.key}"
