"""The SQLite file of a history: several writers, damaged files, other versions."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.errors import HistoryError
from pytest_hetgpu.store import database, history, history_schema
from tests.store.history_samples import GOOD, RUN, go, ids, start


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "history #1.sqlite"


@pytest.mark.parametrize("before", [None, b"", b"this is no database, but somebody's notes\n" * 100])
def test_two_processes_write_at_once(file: Path, before: bytes | None) -> None:
    file.parent.mkdir()
    if before is not None:
        file.write_bytes(before)
    writers = [start(file, name, 15) for name in ("one", "two", "three")]
    for writer in writers:
        go(writer)
    said = "".join(writer.communicate(timeout=60)[0] for writer in writers)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert sorted(ids(file)) == sorted(f"{name}-{place}" for name in ("one", "two", "three") for place in range(15))
    assert all(len(history.load_run(file, run).cells) == 20 for run in ids(file))
    kept = [path for path in file.parent.iterdir() if path != file]
    # Only the first to meet the damage puts it aside.
    assert [path.read_bytes() for path in kept] == ([before] if before else [])
    assert said.count("was damaged") == len(kept)


@pytest.mark.parametrize("damage", ["no database", "pages overwritten", "cut short"])
def test_a_damaged_file_is_kept_aside(file: Path, damage: str) -> None:
    for place in range(30):
        history.put(file, replace(RUN, id=f"r{place}", cells=(GOOD,) * 3))
    data = file.read_bytes()
    broken = {
        "no database": b"\x00garbage" * 2000,
        "pages overwritten": data[:100] + b"\xff" * (len(data) - 100),
        "cut short": data[: len(data) // 2],
    }[damage]
    file.write_bytes(broken)
    said = history.put(file, RUN)
    [aside] = [path for path in file.parent.iterdir() if path != file]
    assert aside.read_bytes() == broken
    assert said.startswith(f"{file} was damaged (")
    assert said.endswith(f"); it is kept as {aside.name}, and a new history begun")
    assert ids(file) == [RUN.id]


def test_a_second_damaged_file_does_not_replace_the_first(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda _: "then")
    file.parent.mkdir()
    for place in range(3):
        file.write_text(f"notes {place}\n" * 100)
        history.put(file, RUN)
    kept = sorted(path.name for path in file.parent.iterdir() if path != file)
    assert kept == [f"{file.name}.damaged-then{more}" for more in ("", "-1", "-2")]


def test_what_sqlite_kept_beside_a_damaged_file_goes_with_it(file: Path) -> None:
    file.parent.mkdir()
    for suffix in ("", "-journal", "-wal", "-shm"):
        file.with_name(f"{file.name}{suffix}").write_text(f"notes{suffix}")
    aside = database._rename_damaged(file)
    found = {path.name.removeprefix(aside.name): path.read_text() for path in file.parent.iterdir()}
    assert found == {suffix: f"notes{suffix}" for suffix in ("", "-journal", "-wal", "-shm")}


def test_a_newer_file_is_refused_and_left_alone(file: Path) -> None:
    history.put(file, RUN)
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA user_version = 99")
    data = file.read_bytes()
    told = r"history #1.sqlite was written by a newer version \(schema 99, known: 3\); it is left alone$"
    with pytest.raises(HistoryError, match=told):
        history.put(file, RUN)
    with pytest.raises(HistoryError, match=told):
        history.list_runs(file)
    assert file.read_bytes() == data


def test_an_older_file_is_brought_up_to_date(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history.put(file, RUN)
    history.put(file, replace(RUN, id="other"))
    more = "CREATE TABLE note (text TEXT); INSERT INTO note SELECT id FROM run"
    monkeypatch.setattr(history_schema, "MIGRATIONS", (*history_schema.MIGRATIONS, more))
    assert ids(file) == ["other", RUN.id], "reading does it, too"
    history.put(file, RUN)
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (4,)
        assert db.execute("SELECT count(*) FROM note").fetchone() == (2,)
    assert history.load_run(file, RUN.id) == RUN


def test_a_migration_that_fails_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history.put(file, RUN)
    with monkeypatch.context() as patch:
        patch.setattr(history_schema, "MIGRATIONS", (*history_schema.MIGRATIONS, "CREATE TABLE note (text); NONSENSE"))
        with pytest.raises(HistoryError, match='near "NONSENSE": syntax error'):
            history.put(file, RUN)
    assert history.load_run(file, RUN.id) == RUN


def test_a_file_of_something_else_is_left_alone(file: Path) -> None:
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE recipe (text TEXT)")
    data = file.read_bytes()
    for use in (lambda: history.put(file, RUN), lambda: history.list_runs(file)):
        with pytest.raises(HistoryError, match="is an SQLite file of something else; it is left alone"):
            use()
    assert file.read_bytes() == data


def test_trouble_is_told_and_never_raised(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (later,) = (f"); hetgpu report {RUN.folder} --history FILE puts it in later",)
    file.mkdir(parents=True)
    assert history.put_or_explain(file, RUN) == [f"history: this run is not in it ({file} is not a file{later}"]
    blocked = file.parent / "notes.txt"
    blocked.write_text("mine")
    assert history.put_or_explain(blocked / "history", RUN) == [
        f"history: this run is not in it ({blocked / 'history'}: it cannot be opened{later}"
    ]
    monkeypatch.setattr(database, "write", lambda *_: 1 / 0)
    assert history.put_or_explain(file, RUN) == [f"history: this run is not in it (division by zero{later}"]


def test_a_writer_that_never_ends_is_not_waited_for_for_ever(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history.put(file, RUN)
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.1)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for use in (lambda: history.put(file, RUN), lambda: history.list_runs(file)):
            with pytest.raises(
                HistoryError, match=r"history #1.sqlite: another process has been writing for too long$"
            ):
                use()
    assert history.load_run(file, RUN.id) == RUN


def test_reading_a_damaged_file_leaves_it_where_it_is(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("notes\n" * 100)
    with pytest.raises(HistoryError, match=r"is damaged \(file is not a database\)"):
        history.list_runs(file)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_writer_that_is_killed_leaves_whole_runs_only(file: Path) -> None:
    writer = start(file, "one", 100_000)
    go(writer)
    while not (file.exists() and file.stat().st_size > 1 << 18):
        assert writer.poll() is None
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    history.put(file, RUN)
    assert {len(history.load_run(file, run).cells) for run in ids(file)} <= {2, 20}
    assert len(ids(file)) > 1
