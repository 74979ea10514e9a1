"""Runs go into the history and come back, with several writers and with damaged files."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import database, history, history_schema
from pytest_hetgpu.store.database import HistoryError
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary
from tests.reporting.report_samples import KEY

WRITER = Path(__file__).with_name("history_writer.py")
ROOT = Path(__file__).resolve().parents[2]

GOOD = CellSummary(
    "aws",
    "a-b-c",
    Kind.PASSED,
    Verdict.OK,
    axes={"placement": "a"},
    seconds=1.5,
    stack="Open MPI 5.0.11",
    transports=("tcp", "sm"),
    facts={"ucx": "1.18.0", "memory": "host"},
    tool="allreduce.py",
    measurements=(
        Measurement("busbw", 1.25, "GB/s", MessagePoint(1024, "float32"), 2),
        Measurement("busbw", 1.5, "GB/s", MessagePoint(1024, "float32", "in"), 2, (1.5, 1.25, 1.75)),
    ),
)
TIME = Measurement("latency", 1 / 3, "us", MessagePoint(8, "float32"), 2, (1 / 3, 12345678.9))
BAD = CellSummary("aws", "a-b-d", Kind.CRASH, Verdict.NEW, signature=KEY, why="rank 0 died")
RUN = RunSummary(
    "20261120-141530-3f2a", "/r/x", 1.7e9, "h", "0.1", (MatrixFile("aws", "aws.yaml", "0" * 64),), (GOOD, BAD)
)

WILD = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)
POINTS = st.builds(MessagePoint, st.integers(), WILD, WILD)
SAMPLES = st.lists(st.floats(), max_size=3).map(tuple)
NUMBERS = st.builds(Measurement, WILD, st.floats(), WILD, POINTS, st.integers(), SAMPLES)
CELLS = st.builds(
    CellSummary,
    WILD,
    WILD,
    st.sampled_from(Kind),
    st.sampled_from(Verdict),
    axes=st.dictionaries(WILD, WILD, max_size=3),
    seconds=st.floats(),
    transports=st.lists(WILD, max_size=3).map(tuple),
    measurements=st.lists(NUMBERS, max_size=3).map(tuple),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "history #1.sqlite"


def ids(file: Path) -> list[str]:
    return [listed.id for listed in history.list_runs(file)]


def test_a_run_comes_back_as_it_was(file: Path) -> None:
    assert history.put(file, RUN) == ""
    assert history.load_run(file, RUN.id) == RUN
    assert history.list_runs(file) == ((RUN.id, RUN.started, frozenset({"aws"})),)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_the_newest_run_is_first(file: Path) -> None:
    for name, started in (("b", 5.0), ("c", 1.0), ("a", 9.0)):
        history.put(file, replace(RUN, id=name, started=started))
    assert ids(file) == ["a", "b", "c"]


def test_a_run_that_is_put_in_again_replaces_itself(file: Path) -> None:
    history.put(file, RUN)
    judged_again = replace(RUN, cells=(replace(BAD, verdict=Verdict.KNOWN),))
    history.put(file, judged_again)
    assert history.load_run(file, RUN.id) == judged_again
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT count(*) FROM measurement").fetchone() == (0,)


def test_samples_keep_six_digits(file: Path) -> None:
    history.put(file, replace(RUN, cells=(replace(GOOD, measurements=(TIME,)),)))
    [cell] = history.load_run(file, RUN.id).cells
    assert cell.measurements == (replace(TIME, samples=(0.333333, 12345700.0)),)


def test_another_run_of_the_same_name_is_refused(file: Path) -> None:
    history.put(file, RUN)
    with pytest.raises(HistoryError, match=f"holds another run {RUN.id}, of h$"):
        history.put(file, replace(RUN, started=1.0, machine="other"))
    assert history.load_run(file, RUN.id) == RUN


def test_numbers_that_are_none(file: Path) -> None:
    values = (math.nan, math.inf, -math.inf, -1.0)
    rows = tuple(
        Measurement("busbw", value, "GB/s", MessagePoint(size, "int8"), 2) for size, value in enumerate(values)
    )
    history.put(file, replace(RUN, cells=(replace(GOOD, seconds=math.nan, measurements=rows),)))
    [cell] = history.load_run(file, RUN.id).cells
    assert [repr(row.value) for row in cell.measurements] == ["nan", "inf", "-inf", "-1.0"]
    assert math.isnan(cell.seconds)


@given(st.lists(CELLS, max_size=3))
def test_whatever_a_journal_held_can_be_put_in(
    tmp_path_factory: pytest.TempPathFactory, cells: list[CellSummary]
) -> None:
    file = tmp_path_factory.mktemp("wild") / "history.sqlite"
    assert history.put_or_explain(file, replace(RUN, cells=tuple(cells))) == []
    kinds = {(cell.kind, cell.verdict) for cell in history.load_run(file, RUN.id).cells}
    assert kinds <= {(cell.kind, cell.verdict) for cell in cells}


def start(file: Path, name: str, count: int) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(WRITER), str(file), name, str(count)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
    assert writer.stdout
    assert writer.stdout.readline() == "ready\n"
    return writer


@pytest.mark.parametrize("before", [None, b"", b"this is no database, but somebody's notes\n" * 100])
def test_two_processes_write_at_once(file: Path, before: bytes | None) -> None:
    file.parent.mkdir()
    if before is not None:
        file.write_bytes(before)
    writers = [start(file, name, 15) for name in ("one", "two", "three")]
    for writer in writers:
        assert writer.stdin
        writer.stdin.write("go\n")
        writer.stdin.flush()
    said = "".join(writer.communicate(timeout=60)[0] for writer in writers)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert sorted(ids(file)) == sorted(f"{name}-{place}" for name in ("one", "two", "three") for place in range(15))
    assert all(len(history.load_run(file, run).cells) == 20 for run in ids(file))
    kept = [path for path in file.parent.iterdir() if path != file]
    # Only the first to meet the damage puts it aside.
    assert [path.read_bytes() for path in kept] == ([before] if before else [])
    assert said.count("was damaged") == len(kept)


def test_a_writer_that_is_killed_leaves_whole_runs_only(file: Path) -> None:
    writer = start(file, "one", 100_000)
    assert writer.stdin
    writer.stdin.write("go\n")
    writer.stdin.flush()
    while not (file.exists() and file.stat().st_size > 1 << 18):
        assert writer.poll() is None
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    history.put(file, RUN)
    assert {len(history.load_run(file, run).cells) for run in ids(file)} <= {2, 20}
    assert len(ids(file)) > 1


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


def test_reading_what_is_not_there_makes_nothing(file: Path) -> None:
    with pytest.raises(HistoryError, match="there is no history "):
        history.list_runs(file)
    assert not file.parent.exists()
    history.put(file, RUN)
    with pytest.raises(HistoryError, match="holds no run 'other'"):
        history.load_run(file, "other")


def test_reading_a_damaged_file_leaves_it_where_it_is(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("notes\n" * 100)
    with pytest.raises(HistoryError, match=r"is damaged \(file is not a database\)"):
        history.list_runs(file)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_kind_that_nobody_knows_is_said(file: Path) -> None:
    history.put(file, RUN)
    with closing(sqlite3.connect(file)) as db:
        db.execute("UPDATE outcome SET kind = 'exploded'")
        db.commit()
    with pytest.raises(HistoryError, match="what it holds cannot be read .*'exploded' is not a valid Kind"):
        history.load_run(file, RUN.id)


def test_seconds_of_cells_are_those_of_the_last_time(file: Path) -> None:
    assert history.last_durations(file) == {}
    for name, started, seconds in (("a", 5.0, 2.0), ("b", 9.0, 3.0), ("c", 1.0, 7.0)):
        history.put(file, replace(RUN, id=name, started=started, cells=(replace(GOOD, seconds=seconds), BAD)))
    assert history.last_durations(file) == {("aws", GOOD.scenario): 3.0}
    assert history.last_durations(file, runs=1) == {("aws", GOOD.scenario): 3.0}


def test_the_run_before_is_the_newest_earlier_one_of_these_matrices(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    assert history.previous_run(file, "x", ["aws"]) is None
    one = RunSummary("", "/runs", 0.0, "vm", "0.1", (MatrixFile("aws", "aws.yaml", ""),), ())
    for number in range(3):
        history.put(file, replace(one, id=f"run-{number}", started=1.7e9 + number))
    history.put(file, replace(one, id="other", started=1.8e9, matrices=(MatrixFile("lumi", "l.yaml", ""),)))
    assert found_before(file, "run-2") == "run-1"
    assert found_before(file, "run-1") == "run-2"
    assert found_before(file, "run-1", 1.7e9 + 1) == "run-0"
    assert history.previous_run(file, "run-2", ["gone"]) is None
    file.write_bytes(b"not a database")
    assert history.previous_run(file, "run-2", ["aws"]) is None


def found_before(file: Path, run: str, until: float = math.inf) -> str:
    found = history.previous_run(file, run, ["aws"], until)
    return found.id if found else ""
