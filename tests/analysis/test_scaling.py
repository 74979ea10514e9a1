"""Efficiency over the number of ranks."""

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.scaling import STRONG, WEAK, Curve, ScalingCell, curves
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.scenario import Scaling

BIG = MessagePoint(1 << 20, "float32")


def cell(ranks: int, metric: str, value: float, point: MessagePoint = BIG, **axes: str) -> ScalingCell:
    names = {"transport": "tcp", "workload": "w", "placement": f"r{ranks}", **axes}
    return ScalingCell(names, [Measurement(metric, value, "u", point, ranks)])


def only(*cells: ScalingCell) -> Curve:
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
    found = only(ScalingCell(one.axes, [small, *one.measurements]), other)
    assert found.point == BIG
    assert found.steps[0].figure == 2.0


@pytest.mark.parametrize(
    "cells",
    [
        (cell(2, "busbw", 2.0),),
        (cell(2, "busbw", 2.0), cell(4, "busbw", 2.0, transport="shm")),
        (cell(2, "busbw", 2.0), cell(4, "busbw", 2.0, point=MessagePoint(8, "float32"))),
        (cell(1, "busbw", 0.0), cell(2, "busbw", 2.0)),
        (cell(0, "samples", 1.0), cell(2, "samples", 2.0)),
        (cell(2, "latency", 2.0), cell(4, "latency", 2.0)),
        (cell(2, "busbw", 2.0, placement="a"), cell(2, "busbw", 2.0, placement="b")),
    ],
)
def test_what_differs_in_more_than_ranks_is_no_curve(cells: tuple[ScalingCell, ...]) -> None:
    assert curves(cells) == ()


def series(kind: str, metric: str, unit: str, *figures: tuple[int, float], scatter: float = 0.0) -> Curve:
    """Return the curve of a series whose samples scatter by this share around each figure."""
    factors = (1 - scatter, 1 - scatter / 2, 1.0, 1 + scatter / 2, 1 + scatter)

    def one(ranks: int, value: float) -> ScalingCell:
        samples = tuple(value * factor for factor in factors) if scatter else ()
        return ScalingCell(
            {"placement": f"n{ranks}", "transport": "tcp"},
            [Measurement(metric, value, unit, BIG, 0, samples)],  # a program may not print its ranks
            Scaling(f"n-{kind}", kind, ranks, metric),
        )

    return only(*(one(*figure) for figure in figures))


@pytest.mark.parametrize(
    ("kind", "unit", "value", "efficiency"),
    [
        (STRONG, "us", 50.0, 0.5),  # 100 us on one rank, a half of it on four
        (WEAK, "us", 125.0, 0.8),  # four times the problem, in 125 % of the time
        (STRONG, "1/s", 200.0, 0.5),
        (WEAK, "1/s", 200.0, 0.5),
    ],
)
def test_a_program_of_ones_own_scales_by_a_time_or_a_rate(
    kind: str, unit: str, value: float, efficiency: float
) -> None:
    found = series(kind, "own", unit, (1, 100.0), (4, value))
    assert found.kind == kind
    assert found.steps[1].efficiency == pytest.approx(efficiency)
    assert found.steps[1].interval is None


def test_samples_give_an_interval() -> None:
    found = series(STRONG, "own", "us", (1, 100.0), (2, 60.0), scatter=0.02)
    assert found.steps[0].interval is None
    low, high = found.steps[1].interval or (0.0, 0.0)
    assert 0.8 < low < 100 / 120 < high < 0.87


def test_the_knee_is_where_more_ranks_no_longer_pay() -> None:
    steps = ((1, 100.0), (2, 52.0), (4, 28.0), (8, 24.0), (16, 30.0))
    found = series(STRONG, "own", "us", *steps, scatter=0.02)
    assert found.knee
    assert (found.knee.ranks, found.knee_is_certain) == (4, True)
    assert not series(STRONG, "own", "us", *steps, scatter=0.5).knee_is_certain
    assert not series(STRONG, "own", "us", *steps).knee_is_certain


def test_what_scales_to_the_end_has_no_knee() -> None:
    found = series(WEAK, "own", "us", (1, 100.0), (2, 105.0), (4, 110.0))
    assert found.knee is None
    assert not found.knee_is_certain


def test_a_series_holds_its_own_cells_only() -> None:
    axes = {"transport": "tcp"}
    cells = [
        ScalingCell({"placement": f"{name}-{ranks}", **axes}, [Measurement("samples", 9.0, "1/s", BIG, ranks)], series)
        for name in ("amd", "nvidia", "")
        for ranks in (1, 2)
        if name or ranks == 1
        for series in [Scaling(name, STRONG, ranks) if name else None]
    ]
    assert [(one.series, one.steps[0].value) for one in curves(cells)] == [("amd", "amd-1"), ("nvidia", "nvidia-1")]
