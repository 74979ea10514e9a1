"""What one dialect, or several, read from a text."""

from __future__ import annotations

from pytest_hetgpu.evidence import Signature
from pytest_hetgpu.logs.lines import parsed
from pytest_hetgpu.registry import find
from pytest_hetgpu.signatures.base import Dialect, Reading
from pytest_hetgpu.signatures.reading.order import ranked


def readings(dialect: str, text: str) -> list[Reading]:
    reader = find("signatures", dialect, Dialect)()  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        reader.feed(parsed(line, number))
    return list(reader.finish())


def spoken(text: str, *dialects: str) -> list[Signature]:
    return list(ranked(reading for dialect in dialects for reading in readings(dialect, text)))


def told(reading: Reading) -> str:
    return f"{reading.signature.kind.value} {reading.signature.key}"
