"""The summary's section on the bandwidth between nodes, and on the share of it that the cells reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pytest_hetgpu.model.bandwidth_text import MORE, describe_link, gbs, percent
from pytest_hetgpu.model.metrics import link_fraction
from pytest_hetgpu.model.records import Measurement
from pytest_hetgpu.model.sizes import show_size
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.store.cells import CellRecord
from pytest_hetgpu.store.environment import PlacementFacts
from pytest_hetgpu.store.text import escape_markdown

MOST_PLACEMENTS = 200
"""The largest number of placements in the table."""
HEADING = ("placement", "limit", "measured by", "best busbw", "of the limit", "of the cell")
_WORKING = (Kind.PASSED, Kind.SLOW)


class BestBandwidth(NamedTuple):
    """The highest bandwidth of a placement as a fraction of its limit, with its cell."""

    fraction: float
    measured: Measurement
    cell: CellRecord


def render(cells: Sequence[CellRecord], placements: Sequence[PlacementFacts]) -> Iterator[str]:
    """Yield paragraphs of Markdown; nothing if no bandwidth was measured."""
    measured = [placement for placement in placements if placement.link]
    if not measured:
        return
    found = {placement.name: find_best(_cells_of(placement, cells)) for placement in measured}
    yield "## What the wire can carry"
    rows = [f"| {' | '.join(HEADING)} |", "|---" * len(HEADING) + "|"]
    rows += (_row(placement, found[placement.name]) for placement in measured[:MOST_PLACEMENTS])
    yield "\n".join(rows)
    if len(measured) > MOST_PLACEMENTS:
        more = len(measured) - MOST_PLACEMENTS
        yield f"{more} more placements are left out here; see `placements/*/environment.json`."
    yield (
        "The limit is in GB/s (1e9 bytes a second) one way between the two nodes of a placement that are the slowest, "
        "over plain TCP, or the rate of the adapters where data passes the kernel by."
    )
    if any(one and one.fraction > 1 for one in found.values()):
        yield MORE


def find_best(cells: Iterable[CellRecord]) -> BestBandwidth | None:
    """Return the highest fraction among working cells; None if there is none."""
    every = (
        BestBandwidth(fraction, measured, cell)
        for cell in cells
        if cell.outcome.kind in _WORKING
        for measured in cell.outcome.measurements
        if (fraction := link_fraction(measured, cell.outcome.wire)) is not None
    )
    return max(every, key=lambda one: one.fraction, default=None)


def _cells_of(placement: PlacementFacts, cells: Iterable[CellRecord]) -> Iterator[CellRecord]:
    return (cell for cell in cells if f"{cell.matrix}-{cell.axes.get('placement')}" == placement.name)


def _row(placement: PlacementFacts, one: BestBandwidth | None) -> str:
    assert placement.link
    limit = placement.link.limit
    entries = [placement.name, f"{gbs(limit.gbs)} GB/s" if limit.gbs else "-", describe_link(limit)]
    if one:
        where = f"{show_size(one.measured.point.size)} {one.measured.point.dtype}"
        entries += [f"{gbs(one.measured.value)} GB/s at {where}", percent(one.fraction), one.cell.label]
    else:
        entries += ["-", "-", "-"]
    return f"| {' | '.join(map(escape_markdown, entries))} |"
