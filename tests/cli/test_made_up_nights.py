"""Nights with planted changes: each is dated, and the fact that changed with it is named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from benchmarks.nights import Planted, cells, nights, planted
from pytest_hetgpu.analysis.cell_history import HistoryState, cell_history
from pytest_hetgpu.analysis.nights.speeds import SpeedHistory, moved, speed_histories
from pytest_hetgpu.cli.history import HistoryOptions, run
from pytest_hetgpu.store import history
from pytest_hetgpu.store.past_runs import PastRuns, past_runs
from pytest_hetgpu.store.past_speeds import past_speeds

CELLS, NIGHTS, EVERY, SEED = 200, 90, 10, 3
MADE = planted(CELLS, NIGHTS, SEED, EVERY)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nights") / "history.sqlite"
    for one in nights(CELLS, NIGHTS, SEED, EVERY):
        history.put(path, one)
    return path


@pytest.fixture(scope="module")
def past(file: Path) -> PastRuns:
    return past_runs(file, NIGHTS)


@pytest.fixture(scope="module")
def speeds(file: Path, past: PastRuns) -> tuple[SpeedHistory, ...]:
    return speed_histories(past, past_speeds(file, NIGHTS))


def names() -> list[str]:
    return [cell.scenario for cell in cells(CELLS)]


def fact(one: Planted) -> str:
    return f"kernel 6.1.0-28-amd64 became {one.kernel}"


def test_each_failure_is_dated_to_its_night_and_the_fact_is_named(past: PastRuns) -> None:
    of_scenario = {cell.scenario: outcomes for cell, outcomes in past.cells.items()}
    failures = [one for one in MADE if not one.factor]
    assert len(failures) == 20
    for one in failures:
        found = cell_history(past.runs, of_scenario[names()[one.place]])
        assert (found.state, found.since) == (HistoryState.BROKEN, one.night)
        assert fact(one) in found.changes


def test_steps_of_three_times_the_noise_are_dated_within_a_night(
    past: PastRuns, speeds: tuple[SpeedHistory, ...]
) -> None:
    found = {cell.scenario: several for cell, several in moved(speeds).items()}
    slowdowns = [one for one in MADE if one.factor]
    assert len(slowdowns) == 20
    dated = [one for one in slowdowns if any(_dated(one, found.get(names()[one.place], ())))]
    assert len(dated) >= 18


def _dated(one: Planted, several: Iterable[SpeedHistory]) -> Iterator[bool]:
    """Yield for each step whether it is the planted one, with its fact."""
    for history_ in several:
        for step, changes in zip(history_.change.steps, history_.changes, strict=True):
            yield abs(step.night - one.night) <= 1 and fact(one) in changes


def test_few_other_cells_have_a_step(speeds: tuple[SpeedHistory, ...]) -> None:
    changed = {names()[one.place] for one in MADE}
    others = [cell.scenario for cell in moved(speeds) if cell.scenario not in changed]
    assert len(others) <= 2, "two quantities of 160 cells over 90 nights, at 1 in 1,000 for 60 nights"


def test_the_terminal_has_both(file: Path) -> None:
    lines: list[str] = []
    run(file, HistoryOptions(NIGHTS), lines.append)
    text = "\n".join(lines)
    for one in MADE:
        if not one.factor:
            assert f"  then {fact(one)}" in text
    assert sum(fact(one) in text for one in MADE) >= 38
    assert "more than 11 us" in text
