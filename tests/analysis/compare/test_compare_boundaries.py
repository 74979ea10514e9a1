"""A boundary that moved between two runs."""

from __future__ import annotations

import json
from dataclasses import replace

from pytest_hetgpu.analysis.compare.boundaries import BoundaryMove, moves
from pytest_hetgpu.analysis.compare.comparison import compare
from pytest_hetgpu.analysis.compare.format import as_json, as_text
from pytest_hetgpu.analysis.compare.sides import Side
from pytest_hetgpu.store.run_summary import CellSummary
from tests.analysis.compare.compare_samples import KEY, absent, bad, busbw, good, side

SIZES = [1024 << step for step in range(6)]
SWEEP = [busbw(1.0, size) for size in SIZES]


def cells(passed: int) -> Side:
    """Every transport on every placement; over tcp so many sizes are measured before the crash."""
    found: list[CellSummary] = []
    for placement in ("p", "q", "r"):
        for transport in ("tcp", "shm", "rc"):
            name = f"{placement}-{transport}"
            cell = replace(bad(name), measurements=tuple(SWEEP[:passed])) if transport == "tcp" else good(name, *SWEEP)
            found.append(replace(cell, axes={"placement": placement, "transport": transport}))
    return side(*found, absent("never"))


def test_a_threshold_moves() -> None:
    made = compare(cells(4), cells(2), 0.1)
    text = list(as_text(made))
    at = text.index("the boundary moved:")
    assert text[at + 1] == f"  {KEY}: from transport=tcp and size >= 16K to transport=tcp and size >= 4K"
    assert json.loads(as_json(made))["boundaries"][0]["after"] == "transport=tcp and size >= 4K"


def test_a_boundary_that_stays_is_not_printed() -> None:
    assert "the boundary moved:" not in list(as_text(compare(cells(4), cells(4), 0.1)))


def test_a_condition_loses_a_part() -> None:
    after = cells(0)
    everywhere = [replace(cell, kind=bad().kind, signature=KEY, measurements=()) for cell in after.runs[0].cells[:9]]
    assert list(moves(cells(0), side(*everywhere))) == [BoundaryMove("aws", KEY, "transport=tcp", "everywhere")]


def test_other_signatures_have_no_boundary_that_moved() -> None:
    other = [replace(cell, signature="other" * bool(cell.signature)) for cell in cells(4).runs[0].cells]
    assert not list(moves(cells(4), side(*other)))
