"""Cells that measure several sizes: a run passes some of them and fails at the next."""

from __future__ import annotations

import itertools

from pytest_hetgpu.analysis.boundary.condition import Ran, RunEnd, conditions
from pytest_hetgpu.analysis.boundary.points import MOST_POINTS, by_point, point_values, stopped_between_points
from pytest_hetgpu.analysis.boundary.runs import RanCell, runs_of, space_of
from pytest_hetgpu.analysis.boundary.summary import summary
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.reporting.boundary_lines import boundary_lines

SWEEP = point_values([MessagePoint(1024 << step, "float32") for step in range(6)])
PASSED = (RunEnd(Ran.PASSED),)


def cells(passed: int | None) -> list[RanCell]:
    """Every transport on every placement; runs over tcp pass so many points."""
    return [
        RanCell(
            {"placement": placement, "transport": transport},
            ends=(RunEnd(Ran.FAILED, "k", passed),) if transport == "tcp" else PASSED,
            points=SWEEP,
        )
        for placement, transport in itertools.product(("p", "q", "r"), ("tcp", "shm", "rc"))
    ]


def lines(passed: int | None) -> dict[str, str]:
    ran = by_point(cells(passed))
    space, runs = space_of(ran), runs_of(ran)
    (found,) = conditions(space, runs)
    return dict(boundary_lines(summary(space, runs, found)))


def test_a_threshold_inside_of_a_sweep() -> None:
    found = lines(4)
    assert found["where"] == "transport=tcp and size >= 16K"
    assert found["support"] == "all 3 matching cells fail this way (all were run), 0 of 6 others"
    assert found["no effect"] == "placement (p, q, r)"
    # Above 16K nothing was run.
    assert "size: 1K, 2K, 4K pass" in found["required"].replace("the 4 others", "1K, 2K, 4K")


def test_a_failure_of_all_sizes_is_not_about_sizes() -> None:
    for passed in (None, 0, len(SWEEP)):
        assert lines(passed)["where"] == "transport=tcp"


def test_only_a_run_that_stopped_between_its_points_needs_them() -> None:
    assert [stopped_between_points(cells(passed)[0]) for passed in (None, 0, 1, 5, 6)] == [
        False,
        False,
        True,
        True,
        False,
    ]


def test_points_that_the_matrix_names_itself_stay_one_cell() -> None:
    own = [RanCell({**cell.values, "size": "sweep"}, ends=cell.ends, points=cell.points) for cell in cells(4)]
    assert by_point(own) is own


def test_too_many_points_stay_one_cell() -> None:
    many = cells(4) * (MOST_POINTS // 6)
    assert by_point(many) is many


def test_an_operation_without_data_has_no_size() -> None:
    assert point_values([MessagePoint(0, "none")]) == ({},)
