"""Runs go into the history and come back, from a file and from a real PostgreSQL database alike."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_hetgpu.errors import HistoryError
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.store import history
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.history_place import HistoryPlace
from pytest_hetgpu.store.past_runs import PastRuns, past_runs
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary
from tests.postgresql_server import PostgresqlServer
from tests.store.history_samples import BAD, CELLS, GOOD, RUN, TIME, ids

KINDS = ("file", "database")
ODD = "a\0b \ud800 \udcff \u00e9 \u4e16"


def _place(kind: str, request: pytest.FixtureRequest, folder: Path) -> HistoryPlace:
    if kind == "file":
        return folder / "deep" / "history #1.sqlite"
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    return server.fresh()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> HistoryPlace:
    """A history that does not exist yet."""
    return _place(request.param, request, tmp_path)


@pytest.fixture(scope="module", params=KINDS)
def lasting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HistoryPlace:
    """A history for many examples of one test."""
    return _place(request.param, request, tmp_path_factory.mktemp("wild"))


Execute = Callable[[HistoryPlace, str], list[tuple[object, ...]]]


@pytest.fixture
def execute(request: pytest.FixtureRequest) -> Execute:
    """Run a statement on the tables of a history."""

    def run(place: HistoryPlace, statement: str) -> list[tuple[object, ...]]:
        if not isinstance(place, Path):
            server: PostgresqlServer = request.getfixturevalue("postgresql")
            return server.sql(statement)
        with closing(sqlite3.connect(place)) as db:
            rows = db.execute(statement).fetchall()
            db.commit()
            return rows

    return run


def test_a_run_comes_back_as_it_was(place: HistoryPlace) -> None:
    assert history.put(place, RUN) == ""
    assert history.load_run(place, RUN.id) == RUN
    assert history.list_runs(place) == ((RUN.id, RUN.started, frozenset({"aws"})),)
    if isinstance(place, Path):
        assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_the_newest_run_is_first(place: HistoryPlace) -> None:
    for name, started in (("b", 5.0), ("c", 1.0), ("a", 9.0)):
        history.put(place, replace(RUN, id=name, started=started))
    assert ids(place) == ["a", "b", "c"]


def test_names_are_sorted_byte_by_byte(place: HistoryPlace) -> None:
    for name in ("b", "B", "_", "a", "Ä"):
        history.put(place, replace(RUN, id=name))
    assert ids(place) == ["Ä", "b", "a", "_", "B"]


def test_a_run_that_is_put_in_again_replaces_itself(place: HistoryPlace, execute: Execute) -> None:
    history.put(place, RUN)
    judged_again = replace(RUN, cells=(replace(BAD, verdict=Verdict.KNOWN),))
    history.put(place, judged_again)
    assert history.load_run(place, RUN.id) == judged_again
    assert execute(place, "SELECT count(*) FROM measurement") == [(0,)]


def test_equal_texts_are_stored_once(place: HistoryPlace, execute: Execute) -> None:
    for number in range(3):
        history.put(place, replace(RUN, id=f"r{number}"))
    counts = [execute(place, f"SELECT count(*) FROM {table}") for table in ("identity", "setting", "point", "number")]
    assert counts == [[(2,)], [(2,)], [(2,)], [(6,)]]


def test_the_views_join_what_the_tables_hold(place: HistoryPlace, execute: Execute) -> None:
    history.put(place, RUN)
    query = (
        "SELECT run, value FROM measurement JOIN cell ON cell.id = cell"
        " WHERE scenario = 'a-b-c' AND metric = 'busbw' AND size = 1024 ORDER BY value"
    )
    assert execute(place, query) == [(RUN.id, 1.25), (RUN.id, 1.5)]


def test_samples_keep_six_digits(place: HistoryPlace) -> None:
    history.put(place, replace(RUN, cells=(replace(GOOD, measurements=(TIME,)),)))
    [cell] = history.load_run(place, RUN.id).cells
    assert cell.measurements == (replace(TIME, samples=(0.333333, 12345700.0)),)


def test_another_run_of_the_same_name_is_refused(place: HistoryPlace) -> None:
    history.put(place, RUN)
    with pytest.raises(HistoryError, match=f"holds another run {RUN.id}, of h$"):
        history.put(place, replace(RUN, started=1.0, machine="other"))
    assert history.load_run(place, RUN.id) == RUN


def test_numbers_that_are_none(place: HistoryPlace) -> None:
    values = (math.nan, math.inf, -math.inf, -1.0)
    rows = tuple(
        Measurement("busbw", value, "GB/s", MessagePoint(size, "int8"), 2) for size, value in enumerate(values)
    )
    history.put(place, replace(RUN, cells=(replace(GOOD, seconds=math.nan, measurements=rows),)))
    [cell] = history.load_run(place, RUN.id).cells
    assert [repr(row.value) for row in cell.measurements] == ["nan", "inf", "-inf", "-1.0"]
    assert math.isnan(cell.seconds)


def test_text_that_no_database_takes_is_made_valid(place: HistoryPlace) -> None:
    cell = replace(GOOD, why=ODD, axes={ODD: ODD}, stack=ODD, measurements=())
    history.put(place, replace(RUN, machine=ODD, cells=(cell,)))
    run = history.load_run(place, RUN.id)
    shown = "a\ufffdb ? ? \u00e9 \u4e16"
    assert (run.machine, run.cells[0].why, run.cells[0].stack) == (shown, shown, shown)
    assert run.cells[0].axes == {ODD: ODD}, "axes are JSON, which has escapes"


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=50)
@given(cells=st.lists(CELLS, max_size=3))
def test_whatever_a_journal_held_can_be_put_in(lasting: HistoryPlace, cells: list[CellSummary]) -> None:
    assert history.put_or_explain(lasting, replace(RUN, cells=tuple(cells))) == []
    kinds = {(cell.kind, cell.verdict) for cell in history.load_run(lasting, RUN.id).cells}
    assert kinds <= {(cell.kind, cell.verdict) for cell in cells}


def test_reading_what_is_not_there_makes_nothing(place: HistoryPlace) -> None:
    for _ in range(2):
        with pytest.raises(HistoryError, match="there is no history "):
            history.list_runs(place)
    assert not isinstance(place, Path) or not place.parent.exists()
    history.put(place, RUN)
    with pytest.raises(HistoryError, match="holds no run 'other'"):
        history.load_run(place, "other")


def test_a_kind_that_nobody_knows_is_said(place: HistoryPlace, execute: Execute) -> None:
    history.put(place, RUN)
    execute(place, "UPDATE outcome SET kind = 'exploded'")
    with pytest.raises(HistoryError, match="what it holds cannot be read .*'exploded' is not a valid Kind"):
        history.load_run(place, RUN.id)


def test_seconds_of_cells_are_those_of_the_last_time(place: HistoryPlace) -> None:
    assert history.last_durations(place) == {}
    for name, started, seconds in (("a", 5.0, 2.0), ("b", 9.0, 3.0), ("c", 1.0, 7.0)):
        history.put(place, replace(RUN, id=name, started=started, cells=(replace(GOOD, seconds=seconds), BAD)))
    assert history.last_durations(place) == {("aws", GOOD.scenario): 3.0}
    assert history.last_durations(place, runs=1) == {("aws", GOOD.scenario): 3.0}


def test_the_run_before_is_the_newest_earlier_one_of_these_matrices(place: HistoryPlace, execute: Execute) -> None:
    assert history.previous_run(place, "x", ["aws"]) is None
    one = RunSummary("", "/runs", 0.0, "vm", "0.1", (MatrixFile("aws", "aws.yaml", ""),), ())
    for number in range(3):
        history.put(place, replace(one, id=f"run-{number}", started=1.7e9 + number))
    history.put(place, replace(one, id="other", started=1.8e9, matrices=(MatrixFile("lumi", "l.yaml", ""),)))
    assert found_before(place, "run-2") == "run-1"
    assert found_before(place, "run-1") == "run-2"
    assert found_before(place, "run-1", 1.7e9 + 1) == "run-0"
    assert history.previous_run(place, "run-2", ["gone"]) is None
    execute(place, "ALTER TABLE run RENAME TO ran")
    assert history.previous_run(place, "run-2", ["aws"]) is None


def found_before(place: HistoryPlace, run: str, until: float = math.inf) -> str:
    found = history.previous_run(place, run, ["aws"], until)
    return found.id if found else ""


def test_the_newest_runs_have_the_outcomes_of_each_cell(place: HistoryPlace, tmp_path: Path) -> None:
    def stored(where: HistoryPlace) -> PastRuns:
        for number in range(4):
            cells = (GOOD, replace(BAD, facts={"ucx": str(number)})) if number != 2 else (GOOD,)
            history.put(where, replace(RUN, id=f"r{number}", started=1.7e9 + number, basis={"b": "c"}, cells=cells))
        return past_runs(where, 3)

    found = stored(place)
    assert [one.id for one in found.runs] == ["r1", "r2", "r3"]
    bad = next(outcomes for cell, outcomes in found.cells.items() if cell.scenario == BAD.scenario)
    assert [one and one.facts["ucx"] for one in bad] == ["1", None, "3"]
    assert found == stored(tmp_path / "other.sqlite")
