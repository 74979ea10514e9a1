"""Sections of `summary.md` that few runs have: results of test suites, efficiencies, and changes along an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pytest_hetgpu.reporting import scaling_table, suites_table
from pytest_hetgpu.store.cells import RunRecord
from pytest_hetgpu.store.text import escape_markdown

_LONGEST_LINE = 1000


def paragraphs(record: RunRecord, escape: Callable[[str], str]) -> Iterator[str]:
    """Yield the paragraphs of each section that the run has."""
    yield from suites_table.paragraphs(record, escape)
    yield from scaling_table.paragraphs(record, escape)
    if record.bisected:
        yield "## Where it changes"
        yield "\n".join(f"- {escape_markdown(one.line, _LONGEST_LINE)}" for one in record.bisected)
