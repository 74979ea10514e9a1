"""Feeding readers: with the real samples of `tests/data/readers`, and with text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from pytest_hetgpu.extensions.output_patterns import ReaderSettings
from pytest_hetgpu.extensions.readers.base import OutputParser, ParseRequest
from pytest_hetgpu.extensions.readers.command import CommandParser
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, OutputLine
from pytest_hetgpu.model.records import MessagePoint

SAMPLES = Path(__file__).parents[2] / "data" / "readers"


def read(
    reader: str,
    text: str,
    *,
    argv: str = "",
    ranks: int | None = 2,
    points: Sequence[MessagePoint] = (),
    settings: ReaderSettings | None = None,
    world: int = 1,
) -> BenchmarkResult:
    """Return a parser's result for a text."""
    asked = ParseRequest(tuple(argv.split()), reader, tuple(points), ranks, world=world)
    found = find("readers", reader, OutputParser)(asked, settings)  # type: ignore[type-abstract]
    for number, line in enumerate(text.splitlines(), 1):
        found.feed(line, number)
    return found.finish()


def read_ranks(settings: ReaderSettings, *outputs: str, world: int = 0) -> BenchmarkResult:
    """Return the result of a user's program whose ranks print these outputs, line by line in turn."""
    found = CommandParser(ParseRequest(world=world or len(outputs)), settings)
    number = 0
    for lines in itertools.zip_longest(*(output.splitlines() for output in outputs)):
        for rank, line in enumerate(lines):
            if line is not None:
                number += 1
                found.read(OutputLine(line, number, rank))
    return found.finish()


def sample(
    reader: str, name: str, *, argv: str = "", ranks: int | None = 2, points: Sequence[MessagePoint] = ()
) -> BenchmarkResult:
    """Return a parser's result for a real sample."""
    text = (SAMPLES / f"{name}.log").read_text(encoding="utf-8")
    return read(reader, text, argv=argv, ranks=ranks, points=points)


def values(row: BenchmarkRow) -> dict[str, float]:
    """Return the figures of a row without their units."""
    return {name: figure.value for name, figure in row.figures.items()}
