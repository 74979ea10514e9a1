"""The grid of a run as plain text for a terminal: one letter per workload, with markup."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.reporting.grid import Grid, carrier_lines, grids
from pytest_hetgpu.store.cells import CellRecord
from pytest_hetgpu.store.text import one_line

Segment = tuple[str, Mapping[str, bool]]
Row = tuple[Segment, ...]

PLAIN: Mapping[str, bool] = {}
BOLD: Mapping[str, bool] = {"bold": True}
BAD: Mapping[str, bool] = {"red": True, "bold": True}
LETTERS: Mapping[Verdict, tuple[str, Mapping[str, bool]]] = {
    Verdict.OK: (".", {"green": True}),
    Verdict.KNOWN: ("k", {"yellow": True}),
    Verdict.NEW: ("N", BAD),
    Verdict.CHANGED: ("C", BAD),
    Verdict.FIXED: ("F", BAD),
    Verdict.NOT_RUN: ("-", {"cyan": True}),
}
_GAP = "  "
_BLANK = "\xa0"  # no line is broken here
_SIDE_BY_SIDE = 6
_MOST_CARRIERS = 20


def table(cells: Iterable[CellRecord], width: int = 80) -> list[Row]:
    """Build the lines for a terminal of `width` columns, each a tuple of (text, markup) with pytest's names of markup.

    `for row in table(cells): [tw.write(text, **markup) for text, markup in row]; tw.line()`. No cells, no lines.
    """
    found = grids(cells)
    rows: list[Row] = []
    for grid in found:
        if len(found) > 1:
            rows.append(((f"matrix {one_line(grid.matrix, width - 7)}", BOLD),))
        rows += _table(grid, width)
    return [*rows, *_legend(found, width)]


def _table(grid: Grid, width: int) -> Iterator[Row]:
    """Yield blocks of columns below each other, then shortened names in full, then the workloads by position."""
    rows = _shorten_all(grid.rows, width // 3)
    margin = max(map(len, rows.values())) + len(_GAP)
    letters = min(len(grid.workloads), max(1, width - margin - len(_GAP)))
    columns = _headings(grid.columns, letters, width - margin)
    for start in range(0, len(grid.workloads), letters):
        workloads = grid.workloads[start : start + letters]
        for block in _split_columns(columns, letters, width - margin):
            headings = "".join(_GAP + columns[name].ljust(size) for name, size in block.items())
            yield ((f"{' ' * margin}{headings.rstrip()}", BOLD),)
            for row in grid.rows:
                yield _join_segments(
                    ((f"{_GAP}{rows[row]}".ljust(margin), PLAIN), *_cells(grid, row, block=block, workloads=workloads))
                )
    yield from _shortened_names(rows, width)
    yield from _shortened_names(columns, width)
    numbered = (f"{place}{_BLANK}{one_line(name)}" for place, name in enumerate(grid.workloads, 1))
    yield from _wrap("workloads, left to right: " + ", ".join(numbered), width)
    if lines := carrier_lines(grid, _MOST_CARRIERS):
        yield from _wrap(f"data carried by: {'; '.join(one_line(line) for line in lines)}", width)


def _headings(names: Sequence[str], letters: int, room: int) -> dict[str, str]:
    """Return column headings; shorten up to six so that they fit side by side, if their letters do."""
    short = _shorten_all(names, room - len(_GAP))
    wide = sum(max(len(text), letters) + len(_GAP) for text in short.values()) > room
    if not wide or len(names) > _SIDE_BY_SIDE:
        return short
    return _shorten_all(names, max(letters, room // len(names) - len(_GAP)))


def _shorten_all(names: Sequence[str], limit: int) -> dict[str, str]:
    """Cut names in their middle to `limit` characters; use numbers instead if two look the same then."""
    short = {name: _shorten(one_line(name) or "-", limit) for name in names}
    if len(set(short.values())) == len(names):
        return short
    return {name: f"#{place}" for place, name in enumerate(names, 1)}


def _shorten(name: str, limit: int) -> str:
    if len(name) <= limit:
        return name
    head = max(limit - 1, 1) // 2
    return f"{name[:head]}~{name[len(name) - (limit - head - 1) :]}"


def _split_columns(columns: Mapping[str, str], letters: int, room: int) -> Iterator[dict[str, int]]:
    """Yield blocks of columns with their widths, as many per block as fit."""
    block: dict[str, int] = {}
    used = 0
    for name, short in columns.items():
        size = max(len(short), letters)
        if block and used + size + len(_GAP) > room:
            yield block
            block, used = {}, 0
        block[name] = size
        used += size + len(_GAP)
    yield block


def _cells(grid: Grid, row: str, *, block: Mapping[str, int], workloads: Sequence[str]) -> Iterator[Segment]:
    for column, size in block.items():
        yield (_GAP, PLAIN)
        for workload in workloads:
            outcome = grid.cells.get((row, column, workload))
            yield LETTERS[outcome.verdict] if outcome else (" ", PLAIN)
        yield (" " * (size - len(workloads)), PLAIN)


def _join_segments(segments: Iterable[Segment]) -> Row:
    """Merge neighbours of the same markup, and strip blanks at the end."""
    joined = [("".join(text for text, _ in run), markup) for markup, run in groupby(segments, key=itemgetter(1))]
    text, markup = joined[-1]
    return (*joined[:-1], (text.rstrip(), markup)) if text.strip() else tuple(joined[:-1])


def _shortened_names(names: Mapping[str, str], width: int) -> Iterator[Row]:
    for name, short in names.items():
        whole = one_line(name)
        if short != whole:
            yield from _wrap(f"{short} = {whole}", width)


def _legend(found: Iterable[Grid], width: int) -> Iterator[Row]:
    seen = {outcome.verdict for grid in found for outcome in grid.cells.values()}
    legend = (f"{LETTERS[verdict][0]} {verdict.value}" for verdict in LETTERS if verdict in seen)
    unbroken = (words.replace("_", " ").replace(" ", _BLANK) for words in legend)
    yield from _wrap(f"{_BLANK * 2} ".join(unbroken), width)


def _wrap(text: str, width: int) -> Iterator[Row]:
    for line in textwrap.wrap(text, width - len(_GAP), break_on_hyphens=False):
        yield ((f"{_GAP}{line.replace(_BLANK, ' ').rstrip()}", PLAIN),)
