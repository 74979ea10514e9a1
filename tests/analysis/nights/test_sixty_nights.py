"""Sixty real runs over two containers, whose link was limited from the fortieth on (`benchmarks/sixty_nights.py`)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.nights.records import CourseShape
from pytest_hetgpu.analysis.nights.speeds import SpeedHistory, speed_histories
from pytest_hetgpu.cli.history import HistoryOptions, run
from pytest_hetgpu.store.past_runs import past_runs
from pytest_hetgpu.store.past_speeds import past_speeds

DUMP = Path(__file__).parents[2] / "data" / "history" / "sixty-nights.sql"
RUNS, LIMITED = 60, 39
FACT = "variable UCX_LOG_LEVEL none became warn"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nights") / "history.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(DUMP.read_text())
    return path


@pytest.fixture(scope="module")
def speeds(file: Path) -> tuple[SpeedHistory, ...]:
    return speed_histories(past_runs(file, RUNS), past_speeds(file, RUNS))


def test_the_bandwidth_over_the_link_has_a_step_in_that_run(speeds: tuple[SpeedHistory, ...]) -> None:
    over_link = [
        one for one in speeds if one.cell.scenario.startswith("pair-") and one.speed.quantity.metric == "busbw"
    ]
    assert len(over_link) == 2
    for one in over_link:
        assert one.change.shape is CourseShape.STEPS
        [(step, changes)] = [
            (step, changes)
            for step, changes in zip(one.change.steps, one.changes, strict=True)
            if abs(step.night - LIMITED) <= 1
        ]
        assert step.ratio < 0.9
        assert FACT in changes


def test_no_other_cell_has_a_step_there(speeds: tuple[SpeedHistory, ...]) -> None:
    for one in speeds:
        if one.cell.scenario.startswith("same-"):
            assert not [step for step in one.change.steps if abs(step.night - LIMITED) <= 1]


def test_the_terminal_has_both(file: Path) -> None:
    lines: list[str] = []
    run(file, HistoryOptions(), lines.append)
    assert lines[0].startswith("60 runs, ")
    assert f"  then {FACT}" in lines
