"""The summary's section on what the way between nodes can carry, and how much of that the cells got."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pytest_hetgpu.model.bandwidth_text import MORE, describe_link, gbs, percent
from pytest_hetgpu.model.metrics import link_fraction
from pytest_hetgpu.model.records import Measurement
from pytest_hetgpu.model.sizes import show_size
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.store.cells import CellRecord
from pytest_hetgpu.store.environment import SeenPlacement
from pytest_hetgpu.store.text import escape

MOST = 200
"""Placements that the table holds."""
HEADING = ("placement", "limit", "measured by", "best busbw", "of the limit", "of the cell")
_WORKS = (Kind.PASSED, Kind.SLOW)


class Best(NamedTuple):
    """The highest bandwidth of a placement as a fraction of its wire's, and whose it is."""

    fraction: float
    measured: Measurement
    cell: CellRecord


def lines(cells: Sequence[CellRecord], placements: Sequence[SeenPlacement]) -> Iterator[str]:
    """Paragraphs of Markdown; nothing where no wire was looked at."""
    measured = [placement for placement in placements if placement.wire]
    if not measured:
        return
    found = {placement.name: best(_of(placement, cells)) for placement in measured}
    yield "## What the wire can carry"
    rows = [f"| {' | '.join(HEADING)} |", "|---" * len(HEADING) + "|"]
    rows += (_row(placement, found[placement.name]) for placement in measured[:MOST])
    yield "\n".join(rows)
    if len(measured) > MOST:
        yield f"{len(measured) - MOST} more placements are left out here; see `placements/*/environment.json`."
    yield (
        "The limit is in GB/s (1e9 bytes a second) one way between the two nodes of a placement that are the slowest, "
        "over plain TCP, or the rate of the adapters where data passes the kernel by."
    )
    if any(one and one.fraction > 1 for one in found.values()):
        yield MORE


def best(cells: Iterable[CellRecord]) -> Best | None:
    """The highest fraction of cells that work; None where none has one."""
    every = (
        Best(fraction, measured, cell)
        for cell in cells
        if cell.outcome.kind in _WORKS
        for measured in cell.outcome.measurements
        if (fraction := link_fraction(measured, cell.outcome.wire)) is not None
    )
    return max(every, key=lambda one: one.fraction, default=None)


def _of(placement: SeenPlacement, cells: Iterable[CellRecord]) -> Iterator[CellRecord]:
    return (cell for cell in cells if f"{cell.matrix}-{cell.axes.get('placement')}" == placement.name)


def _row(placement: SeenPlacement, one: Best | None) -> str:
    assert placement.wire
    limit = placement.wire.limit
    entries = [placement.name, f"{gbs(limit.gbs)} GB/s" if limit.gbs else "-", describe_link(limit)]
    if one:
        where = f"{show_size(one.measured.point.size)} {one.measured.point.dtype}"
        entries += [f"{gbs(one.measured.value)} GB/s at {where}", percent(one.fraction), one.cell.label]
    else:
        entries += ["-", "-", "-"]
    return f"| {' | '.join(map(escape, entries))} |"
