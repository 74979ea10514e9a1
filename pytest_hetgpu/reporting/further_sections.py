"""Sections of `summary.md` that few runs have: test suites, efficiencies, changes along an axis, warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.reporting import scaling_table, suites_table
from pytest_hetgpu.store.cells import RunRecord
from pytest_hetgpu.store.text import escape_markdown

_LONGEST_LINE = 1000
_MOST_LINES = 20


def paragraphs(record: RunRecord, escape: Callable[[str], str]) -> Iterator[str]:
    """Yield the paragraphs of each section that the run has."""
    yield from suites_table.paragraphs(record, escape)
    yield from scaling_table.paragraphs(record, escape)
    if record.bisected:
        yield "## Where it changes"
        yield "\n".join(f"- {escape_markdown(one.line, _LONGEST_LINE)}" for one in record.bisected)
    yield from _warnings(record)


def _warnings(record: RunRecord) -> Iterator[str]:
    """Yield the warnings and notes about cells that work, each once; those of other cells are in their paragraphs."""
    outcomes = [cell.outcome for cell in record.cells if cell.outcome.verdict is Verdict.OK]
    found = Counter(f"preflight: {one}" for outcome in outcomes for one in outcome.concerns)
    found.update(f"note: {one}" for outcome in outcomes for one in outcome.notes)
    if not found:
        return
    yield "## Warnings about cells that work"
    lines = [f"- {escape_markdown(line, _LONGEST_LINE)} ({cells} of them)" for line, cells in found.most_common()]
    more = [f"- {len(lines) - _MOST_LINES} more, in `junit.xml`"] if len(lines) > _MOST_LINES else []
    yield "\n".join((*lines[:_MOST_LINES], *more))
