"""Histories of earlier versions are read and go on. `tests/data/history` has one dump of each, as it was written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import history
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.history_schema import MIGRATIONS
from pytest_hetgpu.store.past_runs import past_runs

DUMPS = Path(__file__).parents[1] / "data" / "history"
PLACES = (MessagePoint(1024, "float32"), MessagePoint(1024, "float32", "in"))


@pytest.fixture(params=range(1, len(MIGRATIONS)))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A history as the version with this schema wrote it."""
    file = tmp_path / f"schema-{request.param}.sqlite"
    with closing(sqlite3.connect(file)) as db:
        db.executescript((DUMPS / f"schema-{request.param}.sql").read_text())
    return file


def test_its_runs_are_read(old: Path) -> None:
    assert [one.id for one in history.list_runs(old)] == ["20261121-141530-aaaa", "20261120-141530-3f2a"]
    run = history.load_run(old, "20261120-141530-3f2a")
    assert (run.folder, run.started, run.machine, run.package, run.site, run.basis) == (
        "/r/x",
        1.7e9,
        "h",
        "0.1",
        "",
        {},
    )
    assert run.matrices == (MatrixFile("aws", "aws.yaml", "0" * 64),)
    good, bad = run.cells
    assert (good.kind, good.seconds, good.transports, good.tool) == (Kind.PASSED, 1.5, ("tcp", "sm"), "allreduce.py")
    assert good.facts == {"ucx": "1.18.0", "memory": "host"}
    assert (good.axes, good.nodes) == ({"placement": "a"}, {})
    samples = (1.5, 1.25, 1 / 3) if old.stem != "schema-1" else ()
    assert good.measurements == (
        Measurement("busbw", 1.25, "GB/s", PLACES[0], 2),
        Measurement("busbw", 1.5, "GB/s", PLACES[1], 2, samples),
    )
    assert (bad.kind, bad.verdict, bad.why, bad.measurements) == (Kind.CRASH, Verdict.NEW, "rank 0 died", ())


def test_it_goes_on(old: Path) -> None:
    run = history.load_run(old, "20261121-141530-aaaa")
    history.put(old, replace(run, id="next", started=run.started + 86_400))
    history.put(old, replace(run, cells=run.cells[:1]))
    assert [one.id for one in history.list_runs(old)] == ["next", run.id, "20261120-141530-3f2a"]
    assert [cell.scenario for cell in history.load_run(old, "next").cells] == ["a-b-c", "a-b-d"]
    cells = past_runs(old, 60).cells
    assert [cell.scenario for cell in cells] == ["a-b-c", "a-b-d"]
    assert [[one is not None for one in outcomes] for outcomes in cells.values()] == [
        [True, True, True],
        [True, False, True],
    ]


def test_documented_queries_still_work(old: Path) -> None:
    history.list_runs(old)
    with closing(sqlite3.connect(old)) as db:
        query = (
            "SELECT run, value FROM measurement JOIN cell ON cell.id = cell WHERE scenario = 'a-b-c' AND size = 1024"
        )
        assert len(db.execute(query).fetchall()) == 4
        assert db.execute("SELECT count(*) FROM identity").fetchone() == (2,), "texts are stored once"
        assert db.execute("SELECT count(*) FROM setting").fetchone() == (2,)
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
