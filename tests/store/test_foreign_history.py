"""A history of another site defines only our own tables: what SQLite would run for it is refused, and a read ends."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.errors import HistoryError
from pytest_hetgpu.store import database, history
from tests.store.history_samples import GOOD, RUN

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"
RUNS = (
    f"CREATE VIEW run AS {ENDLESS} SELECT n AS number, 'r' || n AS id, 'f' AS folder, 1.0 * n AS started,"
    " 'm' AS machine, 'p' AS package, '' AS site, '{}' AS basis FROM r"
)
COMPUTED = (
    "CREATE TABLE matrix (run INTEGER, place INTEGER, name TEXT AS (hex(zeroblob(100000))), file TEXT, sha256 TEXT)"
)
HOSTILE: Mapping[str, tuple[Iterable[str], str]] = {
    "view": (("ALTER TABLE run RENAME TO run0", RUNS), "its table 'run' is a view"),
    "trigger": (
        (f"CREATE TRIGGER x AFTER INSERT ON run BEGIN DELETE FROM run WHERE id IN ({ENDLESS} SELECT n FROM r); END",),
        "it has a trigger, 'x'",
    ),
    "virtual": (("DROP TABLE matrix", "CREATE VIRTUAL TABLE matrix USING fts5(run, place, name)"), "is a virtual one"),
    "computed": (("DROP TABLE matrix", COMPUTED), "the column 'name' of its table 'matrix' is computed"),
    "column": (("DROP TABLE matrix", "CREATE TABLE matrix (run INTEGER)"), "its table 'matrix' lacks the column"),
    "missing": (("DROP TABLE matrix",), "it lacks the table 'matrix'"),
    "other view": (("DROP VIEW cell", f"CREATE VIEW cell AS {ENDLESS} SELECT n FROM r"), "its view 'cell' is another"),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "history.sqlite"
    history.put(path, RUN)
    return path


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_not_ours_is_refused_in_words(file: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    statements, words = HOSTILE[kind]
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA legacy_alter_table = ON")
        for statement in statements:
            db.execute(statement)
        db.commit()
    before = file.read_bytes()
    assert main(["history", "--history", str(file)]) == 4
    told = capsys.readouterr().err
    assert words in told
    assert "is not a history as pytest-hetgpu writes it" in told
    with pytest.raises(HistoryError, match="is left alone"):
        history.put(file, RUN)
    assert file.read_bytes() == before


def test_what_a_user_added_beside_our_tables_is_fine(file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE VIEW mine AS SELECT id FROM run")
        db.execute("CREATE INDEX also_mine ON run (machine)")
        db.execute("ANALYZE")
    history.put(file, RUN)
    assert history.load_run(file, RUN.id).cells[0] == GOOD


def test_a_read_ends_in_time(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SECONDS", 0.05)
    with pytest.raises(HistoryError, match="reading it takes longer than"), database.connect(file) as db:
        list(db.rows(f"{ENDLESS} SELECT max(n) FROM r"))


def test_a_read_has_a_limit_of_rows_and_of_bytes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MOST_ROWS", 100)
    with pytest.raises(HistoryError, match="holds more than 100 rows"), database.connect(file) as db:
        list(db.tuples(f"{ENDLESS} SELECT n FROM r"))
    if hasattr(sqlite3.Connection, "setlimit"):
        with pytest.raises(HistoryError, match="a value that is too large"), database.connect(file) as db:
            list(db.rows("SELECT zeroblob(100000000)"))


def test_nothing_is_written_while_reading(file: Path) -> None:
    with pytest.raises(HistoryError, match="may not be written to"), database.connect(file) as db:
        db.change("DELETE FROM run")


@pytest.mark.parametrize("beside", ["", "-journal", "-wal"])
def test_a_pipe_is_no_history(file: Path, beside: str) -> None:
    if not beside:
        file.unlink()
    os.mkfifo(f"{file}{beside}")
    with pytest.raises(HistoryError, match="is not a file"):
        history.list_runs(file)
