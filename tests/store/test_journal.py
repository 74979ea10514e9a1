"""The files of a writer: whole lines, its own file, no secrets, even after kills and full disks."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_hetgpu import __version__
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.cells import CellState, read_cells, read_run
from pytest_hetgpu.store.events import MatrixFile, journal_schema
from pytest_hetgpu.store.journal import Journal, JournalError, matrix_file
from tests.reporting.report_samples import CRASHED, ISSUE, KNOWN, PASSED, job, result, scenario

ROOT = Path(__file__).parents[2]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_all(folder: Path, writer: str = "main") -> Path:
    """Write one event of each kind."""
    with closing(Journal(folder, writer)) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest", "--hetgpu-matrix", "aws.yaml"])
        journal.planned(job(), 3)
        journal.started(job())
        journal.finished(job(), result())
        journal.judged(job(), KNOWN)
        journal.accepted(job())
        journal.skipped(scenario(), "never", issue=ISSUE, position=4)
        return journal.path


def test_each_event_is_a_line(tmp_path: Path) -> None:
    path = write_all(tmp_path, "gw0")
    assert path == tmp_path / "journal" / "gw0.jsonl"
    events = lines(path)
    assert [event["event"] for event in events] == [
        "run",
        "planned",
        "started",
        "finished",
        "judged",
        "accepted",
        "skipped",
    ]
    assert [event["order"] for event in events] == list(range(7))
    assert [event["clock"] for event in events] == sorted(event["clock"] for event in events)
    assert {event["schema"] for event in events} == {1}
    assert all(event["matrix"] == "aws" and event["scenario"] for event in events[1:])
    assert events[0]["package"] == __version__
    assert events[0]["matrices"] == [{"name": "aws", "file": "aws.yaml", "sha256": "0" * 64}]
    assert events[2]["pid"] == os.getpid()
    assert events[4]["outcome"]["signature"]["key"] == KNOWN.signature.key  # type: ignore[union-attr]
    assert (events[6]["reason"], events[6]["issue"]) == ("never", ISSUE)


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    assert stat.S_IMODE(write_all(tmp_path).stat().st_mode) == 0o600


def test_every_line_fits_the_published_schema(tmp_path: Path) -> None:
    validator = jsonschema.Draft202012Validator(journal_schema())
    validator.check_schema(journal_schema())
    for event in lines(write_all(tmp_path)):
        validator.validate(event)


@pytest.mark.parametrize("broken", [{"event": "judged"}, {"epoch": "now"}, {"schema": 2}, {"pid": "x"}, {"order": -1}])
def test_the_schema_refuses_what_is_wrong(tmp_path: Path, broken: dict[str, Any]) -> None:
    started = lines(write_all(tmp_path))[2]
    assert not jsonschema.Draft202012Validator(journal_schema()).is_valid({**started, **broken})


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_bytes(b"abc")
    found = matrix_file("m", path)
    assert (found.name, found.file, found.sha256[:8]) == ("m", str(path), "ba7816bf")


def test_an_event_is_on_disk_when_the_call_returns(tmp_path: Path) -> None:
    with closing(Journal(tmp_path, "main")) as journal:
        journal.judged(job(), PASSED)
        assert read_cells(tmp_path)[0].outcome == PASSED


def test_no_secret_is_written(tmp_path: Path) -> None:
    secret = job(command=Command(("env", "HF_TOKEN=s3cr3t value", "prog")))
    with closing(Journal(tmp_path, "main")) as journal:
        journal.session_started([], ["pytest", "--token", "s3cr3t"])
        journal.planned(secret)
        journal.finished(secret, replace(result(), argv=secret.command.argv))
        journal.judged(secret, replace(CRASHED, why="password=s3cr3t"))
        journal.skipped(scenario(), "https://me:s3cr3t@host/x refused us")
    assert b"s3cr3t" not in journal.path.read_bytes()


@pytest.mark.parametrize("writer", ["", ".", "..", "../x", "a/b", ".hidden", "a b", "x\n"])
def test_a_writer_is_a_plain_file_name(tmp_path: Path, writer: str) -> None:
    with pytest.raises(ValueError, match="file name"):
        Journal(tmp_path, writer)


def test_a_journal_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("in the way")
    with pytest.raises(JournalError, match=r"journal/main\.jsonl: cannot be opened \(File exists\)"):
        Journal(tmp_path, "main")


def test_a_journal_that_was_closed_says_so(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "main")
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match=r"cannot be written \(Bad file descriptor\)"):
        journal.judged(job(), PASSED)


def test_a_journal_is_continued(tmp_path: Path) -> None:
    path = write_all(tmp_path)
    write_all(tmp_path)
    assert [event["order"] for event in lines(path)] == list(range(14))


@pytest.mark.parametrize("keep", [1, 10, 300])
def test_a_half_line_is_ended_before_the_journal_goes_on(tmp_path: Path, keep: int) -> None:
    path = write_all(tmp_path)
    half = path.read_bytes().splitlines()[4][:keep]
    with path.open("ab") as file:
        file.write(half)
    write_all(tmp_path)
    record = read_run(tmp_path)
    assert record.unread == {"damaged": 1}
    assert len(record.sessions) == 2
    assert [cell.outcome.verdict for cell in record.cells] == [Verdict.KNOWN, Verdict.NOT_RUN]


def test_a_full_disk_is_said_and_costs_one_line(tmp_path: Path) -> None:
    path = write_all(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(Journal(tmp_path, "main")) as journal:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
            with pytest.raises(JournalError, match=r"only 10 of \d+ bytes were written"):
                journal.judged(job("full-disk-x"), PASSED)
            with pytest.raises(JournalError, match=r"cannot be written \(File too large\)"):
                journal.judged(job("full-disk-x"), PASSED)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        journal.judged(job("mixed-ucx-ddp"), PASSED)
    record = read_run(tmp_path)
    assert record.unread == {"damaged": 1}
    assert {cell.label for cell in record.cells} == {"mixed-ucx-send_recv", "mixed-nccl-ddp", "mixed-ucx-ddp"}


def test_room_is_kept_for_last_words_while_a_journal_is_open(tmp_path: Path) -> None:
    with closing(Journal(tmp_path, "main")) as journal:
        [kept] = tmp_path.glob("journal/.*")
        assert kept.stat().st_blocks * 512 >= 64 << 10
        journal.release_reserved_space()
        assert list(tmp_path.glob("journal/.*")) == []


def test_of_a_sole_writer_there_is_one(tmp_path: Path) -> None:
    with closing(Journal(tmp_path, "main", sole=True)) as journal:
        journal.session_started([], [])
        with pytest.raises(UsageError, match=rf"{tmp_path}: process {os.getpid()} on \S+ is still running it"):
            Journal(tmp_path, "main", sole=True)
    Journal(tmp_path, "main", sole=True).close()


WRITER = """
import sys
from pathlib import Path
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import PASSED, job, result
folder, writer, count = sys.argv[1:]
journal = Journal(Path(folder), writer)
for number in range(int(count)):
    made = job(f"{writer}-ucx-w{number}")
    journal.planned(made)
    journal.started(made)
    if number % 50 == 0:
        print(number, flush=True)
    journal.finished(made, result())
    journal.judged(made, PASSED)
"""


def writer(folder: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), name, str(count)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_a_killed_writer_leaves_all_that_it_judged(tmp_path: Path) -> None:
    with writer(tmp_path, "main", 1_000_000) as child:
        assert child.stdout
        while int(child.stdout.readline()) < 200:
            pass
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    record = read_run(tmp_path)
    assert sum(record.unread.values()) <= 1
    *judged, last = record.cells
    assert len(judged) >= 200
    assert all(cell.outcome == PASSED for cell in judged)
    if last.state in (CellState.STARTED, CellState.FINISHED):
        assert (last.outcome.kind, last.outcome.verdict) == (Kind.UNKNOWN, Verdict.NEW)


@pytest.mark.parametrize("names", [("gw0", "gw1"), ("same", "same")])
def test_two_writers_at_once(tmp_path: Path, names: tuple[str, str]) -> None:
    """Even two writers of one name keep each other's lines whole."""
    with writer(tmp_path, names[0], 300) as one, writer(tmp_path, names[1], 300) as two:
        one.communicate()
        two.communicate()
    assert (one.returncode, two.returncode) == (0, 0)
    record = read_run(tmp_path)
    assert not record.unread
    assert len(record.cells) == 300 * len(set(names))
    assert {cell.outcome.verdict for cell in record.cells} == {Verdict.OK}
    assert {cell.writer for cell in record.cells} == set(names)
