"""Several runs from the last step of each level on."""

from __future__ import annotations

import random

import pytest

from pytest_hetgpu.analysis.compare.find import RunLocations, find
from pytest_hetgpu.analysis.nights import change_points
from pytest_hetgpu.analysis.nights.level_start import since_last_step
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import history
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary

POINTS = (MessagePoint(8, "float32"), MessagePoint(1 << 20, "float32"))
COUNT, STEP = 40, 30


def runs() -> tuple[RunSummary, ...]:
    """Forty runs, the newest first; at the thirtieth the latency of large messages rises by a third."""
    random_ = random.Random(4)
    found = []
    for place in range(COUNT):
        values = (10.0, 100.0 if place < STEP else 133.0)
        measured = tuple(
            Measurement("latency", value * random_.gauss(1, 0.02), "us", point, 2)
            for point, value in zip(POINTS, values, strict=True)
        )
        cells = (CellSummary("aws", "a-b-c", Kind.PASSED, Verdict.OK, measurements=measured),)
        found.append(RunSummary(f"r{place:02}", "/r", 1e9 + place, "h", "0.1", (), cells))
    return tuple(reversed(found))


def test_only_the_quantity_with_a_step_begins_later() -> None:
    before = runs()
    found = since_last_step(before)
    assert found.steps == (("a-b-c", f"latency[{POINTS[1]}]", "r30"),)
    assert [run.id for run in found.runs] == [run.id for run in before]
    counts = [len(run.cells[0].measurements) for run in found.runs]
    assert counts == [2] * (COUNT - STEP) + [1] * STEP


def test_steady_runs_stay_as_they_are() -> None:
    before = runs()[COUNT - STEP :]
    assert since_last_step(before).runs == before


def test_last_n_begins_after_the_step_and_a_note_names_it(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path_factory.mktemp("nights") / "history.sqlite"
    for run in runs():
        history.put(file, run)
    side = find("last:40", RunLocations(file.parent, file))
    assert side.note == (
        "last:40: 1 level changed in these runs, and counts from then on: a-b-c latency[1048576,float32] since r30"
    )
    assert sum(len(run.cells[0].measurements) for run in side.runs) == COUNT + COUNT - STEP
    assert find("last:12", RunLocations(file.parent, file)).note == ""
    monkeypatch.setattr(change_points, "available", lambda: False)
    side = find("last:40", RunLocations(file.parent, file))
    assert "pip install 'pytest-hetgpu[history]'" in side.note
    assert sum(len(run.cells[0].measurements) for run in side.runs) == 2 * COUNT
