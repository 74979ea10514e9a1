"""A run is read back from its journals, even damaged ones."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import event_log
from pytest_hetgpu.store.cells import NEVER_STARTED, CellState, format_utc, read_cells, read_run
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CRASHED, ISSUE, KNOWN, PASSED, job, result, scenario


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    with closing(Journal(tmp_path, "main")) as made:
        yield made


def only(folder: Path) -> Any:
    [cell] = read_cells(folder)
    return cell


def put(folder: Path, writer: str, *events: dict[str, Any]) -> None:
    """Write lines as another version, or another clock, might have written them."""
    path = folder / "journal" / f"{writer}.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        for event in events:
            line = {"schema": 1, "order": 0, "matrix": "aws", "scenario": "c", **event}
            file.write(f"{json.dumps(line)}\n")


def judged(epoch: float, kind: str = "passed", verdict: str = "ok") -> dict[str, Any]:
    return {"event": "judged", "epoch": epoch, "outcome": {"kind": kind, "verdict": verdict}}


def started(epoch: float) -> dict[str, Any]:
    return {"event": "started", "epoch": epoch, "pid": 7}


def test_a_judged_cell_has_everything(journal: Journal, tmp_path: Path) -> None:
    before = time.time()
    journal.planned(job())
    journal.started(job())
    journal.finished(job(), result())
    journal.judged(job(), KNOWN)
    cell = only(tmp_path)
    assert (cell.matrix, cell.scenario, cell.label, cell.state) == (
        "aws",
        job().scenario,
        job().label,
        CellState.JUDGED,
    )
    assert cell.axes == job().axes
    assert cell.argv == job().command.argv
    assert (cell.outcome, cell.result, cell.issue) == (KNOWN, result(), ISSUE)
    assert (cell.pid, cell.writer) == (os.getpid(), "main")
    assert before <= cell.started <= time.time()


def test_a_cell_in_flight_is_a_new_failure(journal: Journal, tmp_path: Path) -> None:
    journal.planned(job())
    journal.started(job())
    cell = only(tmp_path)
    assert (cell.state, cell.outcome.kind, cell.outcome.verdict) == (CellState.STARTED, Kind.UNKNOWN, Verdict.NEW)
    who = f"process {os.getpid()} (main), which ran it,"
    said = f"cut short: started at {format_utc(cell.started)}, never judged; {who} is"
    assert cell.outcome.why == f"{said} still running"
    journal.close()
    assert (
        only(tmp_path).outcome.why == f"{said} gone: killed, or stopped with its machine, before it could record more"
    )


def test_a_cell_that_ended_and_was_not_judged_is_no_pass(journal: Journal, tmp_path: Path) -> None:
    journal.started(job())
    journal.finished(job(), result())
    cell = only(tmp_path)
    assert (cell.state, cell.outcome.kind, cell.outcome.verdict) == (CellState.FINISHED, Kind.UNKNOWN, Verdict.NEW)
    assert "never judged; its command had ended with return code 0; process" in cell.outcome.why
    assert cell.outcome.seconds == result().seconds


def test_a_cell_whose_start_was_lost_is_no_pass(journal: Journal, tmp_path: Path) -> None:
    journal.finished(job(), result())
    assert only(tmp_path).outcome.why.startswith("cut short: started at a time unknown, never judged")


def test_a_planned_cell_never_ran(journal: Journal, tmp_path: Path) -> None:
    journal.planned(job())
    cell = only(tmp_path)
    assert (cell.state, cell.outcome) == (CellState.PLANNED, NEVER_STARTED)
    assert cell.outcome.verdict is Verdict.NOT_RUN


def test_a_skip_says_why(journal: Journal, tmp_path: Path) -> None:
    journal.skipped(scenario(), "never", issue=ISSUE)
    cell = only(tmp_path)
    assert (cell.state, cell.outcome.kind, cell.outcome.verdict) == (CellState.SKIPPED, Kind.SKIPPED, Verdict.NOT_RUN)
    assert (cell.outcome.why, cell.issue, cell.axes) == ("never", ISSUE, job("mixed-nccl-ddp").axes)


def test_the_last_attempt_counts(journal: Journal, tmp_path: Path) -> None:
    journal.planned(job())
    journal.judged(job(), PASSED)
    journal.planned(job())
    assert only(tmp_path).outcome == PASSED
    journal.started(job())
    assert only(tmp_path).outcome.kind is Kind.UNKNOWN
    journal.judged(job(), CRASHED)
    assert only(tmp_path).outcome == CRASHED
    journal.skipped(job(), "its node is gone", issue=ISSUE)
    assert (only(tmp_path).outcome.why, only(tmp_path).result) == ("its node is gone", None)
    journal.judged(job(), PASSED)
    assert (only(tmp_path).outcome, only(tmp_path).issue) == (PASSED, None)


def test_between_writers_the_clock_decides(tmp_path: Path) -> None:
    put(tmp_path, "gw0", started(10), judged(40, "crash", "new"))
    put(tmp_path, "gw1", started(20), judged(30))
    cell = only(tmp_path)
    assert (cell.outcome.kind, cell.writer, cell.started) == (Kind.CRASH, "gw0", 20)


def test_a_writers_own_order_holds_when_its_clock_goes_back(tmp_path: Path) -> None:
    put(tmp_path, "gw0", started(50), judged(20))
    put(tmp_path, "gw1", {**started(30), "scenario": "other"})
    assert [(cell.scenario, cell.state) for cell in read_cells(tmp_path)] == [
        ("other", CellState.STARTED),
        ("c", CellState.JUDGED),
    ]


def test_the_machines_clock_that_never_goes_back_decides_where_there_is_one(tmp_path: Path) -> None:
    put(tmp_path, "gw0", {**started(5000), "clock": 10.0}, {**judged(1000, "crash", "new"), "clock": 20.0})
    put(tmp_path, "main", {**judged(4999, "hang", "new"), "clock": 15.0})
    assert only(tmp_path).outcome.kind is Kind.CRASH


def test_a_later_part_is_later_whatever_the_clocks_say(tmp_path: Path) -> None:
    put(tmp_path, "gw0", {**started(5000), "clock": 900.0})
    put(tmp_path, "main", {**judged(1000), "clock": 2.0, "part": 1})
    assert only(tmp_path).outcome.kind is Kind.PASSED
    assert [cell.state for cell in read_run(tmp_path, before=1).cells] == [CellState.STARTED]
    assert read_run(tmp_path).part == 1


@pytest.mark.parametrize("broken", [{"clock": "noon"}, {"clock": 10**400}, {"part": 1.5}, {"part": None}])
def test_a_line_out_of_all_order_is_damaged(tmp_path: Path, broken: dict[str, Any]) -> None:
    put(tmp_path, "main", judged(1), {**judged(2, "crash", "new"), **broken})
    assert only(tmp_path).outcome.kind is Kind.PASSED
    assert read_run(tmp_path).unread == {"damaged": 1}


def test_a_test_that_accepts_a_failure(journal: Journal, tmp_path: Path) -> None:
    journal.judged(job(), CRASHED)
    journal.accepted(job())
    assert only(tmp_path).accepted
    journal.judged(job(), CRASHED)
    assert only(tmp_path).accepted
    journal.started(job())
    assert not only(tmp_path).accepted


def test_cells_stand_in_the_order_of_the_matrix(journal: Journal, tmp_path: Path) -> None:
    journal.skipped(scenario("a-b-last"), "x")
    journal.planned(job("a-b-third"), 7)
    journal.planned(job("a-b-second"), 1)
    journal.skipped(scenario("a-b-first"), "x", position=0)
    assert [cell.label for cell in read_cells(tmp_path)] == ["a-b-first", "a-b-second", "a-b-third", "a-b-last"]


def test_one_id_in_two_matrices_is_two_cells(tmp_path: Path) -> None:
    put(tmp_path, "gw0", judged(1), {**judged(2, "crash", "new"), "matrix": "lumi"})
    assert {cell.matrix: cell.outcome.kind for cell in read_cells(tmp_path)} == {"aws": Kind.PASSED, "lumi": Kind.CRASH}


GARBAGE = [
    b"\x00\xff\xfe\x80",
    b"{",
    b"[]",
    b'"text"',
    b"null",
    b"[" * 100_000,
    b"1" * 10_000,
    b"{}",
    b'{"schema": true, "event": "run"}',
    b'{"schema": 0, "event": "run"}',
    b'{"schema": 1, "event": "judged"}',
    b'{"schema": 1, "event": "judged", "epoch": 1e999, "matrix": "m", "scenario": "c"}',
    b'{"schema": 1, "event": "judged", "epoch": 1, "matrix": "m", "scenario": "c", "outcome": {"kind": "passed"}}',
    b'{"schema": 1, "event": "started", "epoch": 1, "matrix": ["m"], "scenario": "c", "pid": 1}',
]


@pytest.mark.parametrize("line", GARBAGE, ids=lambda line: line[:40].decode("latin-1"))
def test_a_damaged_line_is_counted_and_costs_only_itself(tmp_path: Path, line: bytes) -> None:
    put(tmp_path, "gw0", judged(1))
    with (tmp_path / "journal" / "gw0.jsonl").open("ab") as file:
        file.write(line + b"\n\n")
    put(tmp_path, "gw0", {**judged(2), "scenario": "d"})
    record = read_run(tmp_path)
    assert record.unread == {"damaged": 1}
    assert [cell.scenario for cell in record.cells] == ["c", "d"]


@pytest.mark.parametrize("line", [{"schema": 2, "event": "judged"}, {"event": "dreamt", "epoch": 1}])
def test_a_line_of_a_newer_version_is_counted(tmp_path: Path, line: dict[str, Any]) -> None:
    put(tmp_path, "gw0", judged(1), line)
    record = read_run(tmp_path)
    assert record.unread == {"newer": 1}
    assert len(record.cells) == 1


def test_an_outcome_of_a_newer_version_never_becomes_a_pass(tmp_path: Path) -> None:
    put(tmp_path, "gw0", judged(1), started(2), judged(3, "melted", "new"))
    assert only(tmp_path).outcome.kind is Kind.UNKNOWN


def test_a_journal_cut_anywhere_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal" / "gw0.jsonl"
    put(tmp_path, "gw0", started(1), judged(2))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole)):
        path.write_bytes(whole[:length])
        record = read_run(tmp_path)
        complete = length == len(whole) - 1
        assert record.unread == ({} if complete or length == first else {"damaged": 1})
        assert record.cells[0].outcome.kind is (Kind.PASSED if complete else Kind.UNKNOWN)


def test_a_line_without_end_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "LONGEST_LINE", 1000)
    put(tmp_path, "gw0", judged(1))
    with (tmp_path / "journal" / "gw0.jsonl").open("ab") as file:
        file.write(b"x" * 5000 + b"\n" + b"y" * 999 + b"\n")
    put(tmp_path, "gw0", {**judged(2), "scenario": "d"})
    record = read_run(tmp_path)
    assert (record.unread, len(record.cells)) == ({"damaged": 2}, 2)


def test_what_is_no_file_is_no_journal(tmp_path: Path) -> None:
    put(tmp_path, "gw0", judged(1))
    (tmp_path / "journal" / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "journal" / "pipe.jsonl")
    (tmp_path / "journal" / "notes.txt").write_text("not ours")
    assert read_run(tmp_path).unread == {}
    assert len(read_cells(tmp_path)) == 1


def test_a_journal_that_cannot_be_read_is_counted(tmp_path: Path) -> None:
    put(tmp_path, "gw0", judged(1))
    (tmp_path / "journal" / "gw1.jsonl").symlink_to("/proc/self/mem")
    record = read_run(tmp_path)
    assert (record.unread, len(record.cells)) == ({"damaged": 1}, 1)


def test_a_folder_without_a_journal_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the folder of a run"):
        read_cells(tmp_path)
    (tmp_path / "journal").mkdir()
    assert read_cells(tmp_path) == []


def test_sessions_are_remembered(journal: Journal, tmp_path: Path) -> None:
    journal.session_started([], ["pytest"])
    journal.session_started([], ["pytest", "--hetgpu-resume"])
    record = read_run(tmp_path)
    assert [session.argv for session in record.sessions] == [("pytest",), ("pytest", "--hetgpu-resume")]
    assert record.cells == ()


@pytest.mark.parametrize(
    ("epoch", "said"),
    [(0.0, "1970-01-01 00:00:00 UTC"), (1e300, "1e+300 s after 1970"), (-1e18, "-1e+18 s after 1970")],
)
def test_any_moment_can_be_said(epoch: float, said: str) -> None:
    assert format_utc(epoch) == said


@pytest.mark.slow
def test_ten_thousand_cells(tmp_path: Path) -> None:
    many = [job(f"p{i % 10}-t{i // 10 % 10}-w{i // 100}") for i in range(10_000)]
    outcome = replace(PASSED, measurements=PASSED.measurements * 10)
    before = time.perf_counter()
    with closing(Journal(tmp_path, "main")) as journal:
        for position, made in enumerate(many):
            journal.planned(made, position)
            journal.started(made)
            journal.finished(made, result())
            journal.judged(made, outcome)
    written = time.perf_counter()
    cells = read_cells(tmp_path)
    done = time.perf_counter()
    sys.stdout.write(f"written in {(written - before) * 100:.0f} us a cell, 10,000 read in {done - written:.1f} s\n")
    assert [cell.label for cell in cells] == [made.label for made in many]
    assert all(cell.outcome == outcome for cell in cells)
