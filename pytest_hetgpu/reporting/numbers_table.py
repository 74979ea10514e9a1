"""The summary's table of what each cell measured: one number per metric, the telling one first."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.model.quantities import describe, telling
from pytest_hetgpu.store.cells import CellRecord, RunRecord
from pytest_hetgpu.store.text import escape_markdown

#: Bytes of the table.
BUDGET = 100_000
HEADING = "| cell | measured |\n|---|---|"


def paragraphs(record: RunRecord) -> Iterator[str]:
    """Yield the section; nothing if no cell measured anything."""
    measured = [cell for cell in record.cells if cell.outcome.measurements]
    if not measured:
        return
    yield "## What was measured"
    rows: list[str] = []
    left = BUDGET
    for row in map(_row, measured):
        left -= len(row.encode()) + 1
        if left < 0:
            break
        rows.append(row)
    yield "\n".join((HEADING, *rows))
    if more := len(measured) - len(rows):
        yield f"{more} more cells are left out here; `junit.xml` has the numbers of every cell."
    yield "A rate is the highest of all message sizes, any other number that of the smallest message."


def _row(cell: CellRecord) -> str:
    numbers = ", ".join(map(describe, telling(cell.outcome.measurements)))
    return f"| {escape_markdown(cell.label)} | {escape_markdown(numbers, 1000)} |"
