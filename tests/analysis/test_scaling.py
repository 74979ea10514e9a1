"""Efficiency over the number of ranks."""

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.scaling import STRONG, WEAK, Cell, Curve, curves
from pytest_hetgpu.model.records import Measurement, MessagePoint

BIG = MessagePoint(1 << 20, "float32")


def cell(ranks: int, metric: str, value: float, point: MessagePoint = BIG, **axes: str) -> Cell:
    names = {"transport": "tcp", "workload": "w", "placement": f"r{ranks}", **axes}
    return Cell(names, [Measurement(metric, value, "u", point, ranks)])


def only(*cells: Cell) -> Curve:
    (found,) = curves(cells)
    return found


def test_a_whole_problem_on_more_ranks_is_strong_scaling() -> None:
    found = only(*(cell(ranks, "intervals", rate) for ranks, rate in ((1, 100.0), (2, 200.0), (4, 200.0))))
    assert (found.kind, found.axis, found.others) == (STRONG, "placement", ("tcp", "w"))
    assert [(step.ranks, step.efficiency) for step in found.steps] == [(1, 1.0), (2, 1.0), (4, 0.5)]


def test_a_rate_of_all_ranks_is_weak_scaling() -> None:
    found = only(cell(4, "samples", 300.0), cell(2, "samples", 200.0))
    assert found.kind == WEAK
    assert [(step.ranks, step.efficiency) for step in found.steps] == [(2, 1.0), (4, 0.75)]


def test_busbw_is_to_stay() -> None:
    found = only(cell(2, "busbw", 2.0), cell(8, "busbw", 1.0))
    assert [step.efficiency for step in found.steps] == [1.0, 0.5]


def test_the_largest_message_tells() -> None:
    small = Measurement("busbw", 9.0, "GB/s", MessagePoint(8, "float32"), 2)
    one, other = cell(2, "busbw", 2.0), cell(4, "busbw", 1.0)
    found = only(Cell(one.axes, [small, *one.measurements]), other)
    assert found.point == BIG
    assert found.steps[0].figure == 2.0


@pytest.mark.parametrize(
    "cells",
    [
        (cell(2, "busbw", 2.0),),
        (cell(2, "busbw", 2.0), cell(4, "busbw", 2.0, transport="shm")),
        (cell(2, "busbw", 2.0), cell(4, "busbw", 2.0, point=MessagePoint(8, "float32"))),
        (cell(1, "busbw", 0.0), cell(2, "busbw", 2.0)),
        (cell(2, "latency", 2.0), cell(4, "latency", 2.0)),
        (cell(2, "busbw", 2.0, placement="a"), cell(2, "busbw", 2.0, placement="b")),
    ],
)
def test_what_differs_in_more_than_ranks_is_no_curve(cells: tuple[Cell, ...]) -> None:
    assert curves(cells) == ()
