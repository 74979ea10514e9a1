"""The history of several sites: earlier runs, shared and old files, and runs of one id."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.errors import HistoryError
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import history
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.merge import SiteRun
from pytest_hetgpu.store.merged_history import MergedHistory
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary

DUMPS = Path(__file__).parents[1] / "data" / "history"
CELL = CellSummary("aws", "cpu-ucx-send", Kind.PASSED, Verdict.OK)


def site_run(reports: Path, site: str) -> SiteRun:
    folder = RunFolder.create(reports)
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"])
    return SiteRun(site, folder.path, read_run(folder.path))


def earlier(reports: Path, name: str, machine: str, started: float = 1.0, site: str = "") -> None:
    run = RunSummary(name, "/r", started, machine, "0.1", (), (replace(CELL, why=machine),), site)
    history.put(reports / "history.sqlite", run)


def sites(path: Path) -> dict[str, str]:
    return {one.id: history.load_run(path, one.id).site for one in history.list_runs(path)}


def test_earlier_runs_have_the_site_of_their_file(tmp_path: Path) -> None:
    runs = [site_run(tmp_path / "a", "amd"), site_run(tmp_path / "b", "nv")]
    earlier(tmp_path / "a", "r1", "host1")
    earlier(tmp_path / "a", "r2", "host2", site="far")
    earlier(tmp_path / "b", "r3", "host1")
    made = MergedHistory(tmp_path / "new.sqlite")
    made.add(runs)
    assert sites(made.path) == {runs[0].id: "amd", runs[1].id: "nv", "r1": "amd", "r2": "far", "r3": "nv"}
    assert made.runs == {"amd": 2, "nv": 2, "far": 1}
    assert made.notes == []


def test_in_a_shared_file_the_host_gives_the_site(tmp_path: Path) -> None:
    one, other = site_run(tmp_path / "r", "amd"), site_run(tmp_path / "r", "nv")
    (session,) = other.record.sessions
    other = replace(other, record=replace(other.record, sessions=(replace(session, host="gpu9"),)))
    for name, machine in (("r1", session.host), ("r2", "gpu9"), ("r3", "old-host")):
        earlier(tmp_path / "r", name, machine)
    made = MergedHistory(tmp_path / "new.sqlite")
    made.add([one, other])
    assert sites(made.path) == {one.id: "amd", other.id: "nv", "r1": "amd", "r2": "nv", "r3": "old-host"}


def test_two_runs_of_one_id_are_both_kept_and_a_copied_one_is_one(tmp_path: Path) -> None:
    runs = [site_run(tmp_path / "a", "amd"), site_run(tmp_path / "b", "nv")]
    earlier(tmp_path / "a", "same", "host1", 1.0)
    earlier(tmp_path / "b", "same", "host2", 2.0)
    for reports in ("a", "b"):
        earlier(tmp_path / reports, "copied", "host3", 3.0)
    made = MergedHistory(tmp_path / "new.sqlite")
    made.add(runs)
    assert sites(made.path).keys() == {runs[0].id, runs[1].id, "same", "same@nv", "copied"}


@pytest.mark.parametrize("schema", [1, 2])
def test_an_old_file_is_migrated_in_a_copy(tmp_path: Path, schema: int) -> None:
    runs = [site_run(tmp_path / "a", "amd"), site_run(tmp_path / "b", "nv")]
    file = tmp_path / "a" / "history.sqlite"
    with closing(sqlite3.connect(file)) as db:
        db.executescript((DUMPS / f"schema-{schema}.sql").read_text())
    before = file.read_bytes()
    made = MergedHistory(tmp_path / "new.sqlite")
    made.add(runs)
    assert made.runs == {"amd": 3, "nv": 1}
    assert file.read_bytes() == before
    assert sorted(path.name for path in file.parent.glob("history*")) == ["history.sqlite"]


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0" + b"x" * 5000, b"text"])
def test_a_file_that_cannot_be_read_is_noted(tmp_path: Path, data: bytes) -> None:
    runs = [site_run(tmp_path / "a", "amd"), site_run(tmp_path / "b", "nv")]
    file = tmp_path / "a" / "history.sqlite"
    file.write_bytes(data)
    made = MergedHistory(tmp_path / "new.sqlite")
    made.add(runs)
    assert made.runs == {"amd": 1, "nv": 1}
    assert all("earlier runs are left out" in note and str(file) in note for note in made.notes)
    assert bool(made.notes) is bool(data)
    assert file.read_bytes() == data


def test_a_history_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = MergedHistory(tmp_path / "file" / "history.sqlite")
    with pytest.raises(HistoryError):
        made.add([site_run(tmp_path / "a", "amd")])
