"""What one dialect, or several, read from a text."""

from __future__ import annotations

from pytest_hetgpu.analysis.logs.lines import parsed
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.model.failure import Signature


def matches(dialect: str, text: str) -> list[FailureMatch]:
    reader = find("signatures", dialect, LogParser)()  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        reader.feed(parsed(line, number))
    return list(reader.finish())


def spoken(text: str, *dialects: str) -> list[Signature]:
    return list(by_priority(match for dialect in dialects for match in matches(dialect, text)))


def told(match: FailureMatch) -> str:
    return f"{match.signature.kind.value} {match.signature.key}"
