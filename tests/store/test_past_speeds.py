"""Speeds of cells in a history: which quantities are chosen, and their value in each run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import history
from pytest_hetgpu.store.history import HistoryError
from pytest_hetgpu.store.past_speeds import PastSpeed, past_speeds
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary

CELL = CellSummary("aws", "a", Kind.PASSED, Verdict.OK)
UNITS = {"latency": "us", "busbw": "GB/s", "algbw": "GB/s", "seconds": "s", "samples": "1/s", "tokens": "1/s"}


def measured(value: float, *wanted: str, name: str = "a") -> CellSummary:
    """Return a cell with these metrics, `latency@8`."""
    found = []
    for one in wanted:
        metric, _, size = one.partition("@")
        point = MessagePoint(int(size or 0), "float32")
        found.append(Measurement(metric, value, UNITS[metric], point, 2))
    return replace(CELL, scenario=name, measurements=tuple(found))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def put(file: Path, number: int, *cells: CellSummary, site: str = "", start: float | None = None) -> None:
    started = 1.7e9 + 86_400 * (number if start is None else start)
    history.put(file, RunSummary(f"r{number}{site}", "", started, "ci", "0.1", (), cells, site))


def speeds(file: Path, last: int = 60) -> dict[str, list[tuple[str, int, tuple[float | None, ...]]]]:
    """Return metric, size and values by `site/cell`."""
    return {f"{cell.site}/{cell.scenario}": sorted(map(flat, found)) for cell, found in past_speeds(file, last).items()}


def flat(one: PastSpeed) -> tuple[str, int, tuple[float | None, ...]]:
    return one.quantity.metric, one.quantity.size, one.values


def test_latency_of_the_smallest_and_bandwidth_of_the_largest_message(file: Path) -> None:
    sweep = [f"{metric}@{size}" for metric in ("latency", "algbw", "busbw") for size in (65_536, 8, 1 << 20)]
    put(file, 0, measured(1.5, *sweep))
    put(file, 1, measured(2.5, *sweep))
    assert speeds(file) == {"/a": [("busbw", 1 << 20, (1.5, 2.5)), ("latency", 8, (1.5, 2.5))]}


def test_every_metric_of_a_program_is_watched(file: Path) -> None:
    put(file, 0, measured(3.0, "samples", "seconds"), measured(4.0, "seconds", name="b"))
    assert speeds(file) == {"/a": [("samples", 0, (3.0,)), ("seconds", 0, (3.0,))], "/b": [("seconds", 0, (4.0,))]}
    put(file, 1, measured(3.0, "samples", "latency@8"))
    assert [one[:2] for one in speeds(file)["/a"]] == [("latency", 8), ("samples", 0)]


def test_the_last_measured_run_decides(file: Path) -> None:
    put(file, 0, measured(1.0, "latency@8", "busbw@64"))
    put(file, 1, measured(2.0, "latency@4", "busbw@64"))
    assert speeds(file) == {"/a": [("busbw", 64, (1.0, 2.0)), ("latency", 4, (None, 2.0))]}


def test_a_cell_that_fails_since_long_has_its_old_speeds(file: Path) -> None:
    put(file, 0, measured(1.0, "latency@8"), measured(5.0, "busbw@64", name="b"))
    for number in range(1, 9):
        put(file, number, replace(CELL, kind=Kind.CRASH, verdict=Verdict.NEW), measured(5.0, "busbw@64", name="b"))
    assert speeds(file) == {"/a": [("latency", 8, (1.0, *[None] * 8))], "/b": [("busbw", 64, (5.0,) * 9)]}
    # In these runs it was never measured.
    assert speeds(file, 8) == {"/b": [("busbw", 64, (5.0,) * 8)]}


def test_a_cell_that_some_runs_lack_has_no_value_there(file: Path) -> None:
    for number in range(4):
        put(file, number, *([measured(1.0, "latency@8")] if number % 2 else []), measured(2.0, "busbw@64", name="b"))
    assert speeds(file)["/a"] == [("latency", 8, (None, 1.0, None, 1.0))]


def test_values_are_in_the_order_of_the_starts(file: Path) -> None:
    for number, start in enumerate((5.0, 1.0, 3.0)):
        put(file, number, measured(float(number), "latency@8"), start=start)
    assert speeds(file) == {"/a": [("latency", 8, (1.0, 2.0, 0.0))]}
    assert speeds(file, 2) == {"/a": [("latency", 8, (2.0, 0.0))]}


def test_sites_have_speeds_of_their_own(file: Path) -> None:
    put(file, 0, measured(1.0, "latency@8"), site="aws")
    put(file, 1, measured(2.0, "latency@8"), site="lab")
    put(file, 2, measured(3.0, "latency@8"), site="aws")
    assert speeds(file) == {
        "aws/a": [("latency", 8, (1.0, None, 3.0))],
        "lab/a": [("latency", 8, (None, 2.0, None))],
    }


def test_a_history_without_measurements_or_without_a_file(file: Path) -> None:
    with pytest.raises(HistoryError, match="there is no history"):
        past_speeds(file, 5)
    put(file, 0, CELL)
    assert speeds(file) == {}
