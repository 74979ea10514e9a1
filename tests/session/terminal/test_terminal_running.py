"""Which cells run, by the journals of all writers."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from pytest_hetgpu.session.terminal.running import JUDGED, READY, WAITING, RunningCells, last_line
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.redaction.redact import clear_secrets, register_secrets
from tests.reporting.report_samples import PASSED, job, result

SEND, REDUCE = "mixed-ucx-send", "mixed-ucx-allreduce"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "reports")


def seen(cells: RunningCells) -> dict[str, str]:
    return {one.label: one.told for one in cells.now()}


def test_a_cell_from_its_test_to_its_verdict(folder: RunFolder) -> None:
    cells = RunningCells(folder.path, time.time())
    with closing(Journal(folder.path, "gw0")) as journal:
        cells.begin(SEND, time.time())
        assert seen(cells) == {SEND: READY}
        journal.planned(job(SEND))
        assert seen(cells) == {SEND: WAITING}
        journal.started(job(SEND))
        assert seen(cells) == {SEND: ""}
        log = folder.start_log(SEND)
        log.write_bytes(b"first\nsecond\n\n")
        assert seen(cells) == {SEND: "second"}
        with log.open("ab") as file:
            file.write(b"third, not ended")
        assert seen(cells) == {SEND: "third, not ended"}
        journal.finished(job(SEND), result())
        assert seen(cells) == {SEND: JUDGED}
        journal.judged(job(SEND), PASSED)
        cells.end(SEND)
        assert seen(cells) == {}


def test_cells_of_all_writers_the_longest_running_first(folder: RunFolder) -> None:
    cells = RunningCells(folder.path, time.time())
    with closing(Journal(folder.path, "gw0")) as one, closing(Journal(folder.path, "gw1")) as other:
        for journal, label in ((one, SEND), (other, REDUCE)):
            journal.planned(job(label))
            journal.started(job(label))
        assert list(seen(cells)) == [SEND, REDUCE]
        cells.end(SEND)
        one.planned(job(SEND))
        assert list(seen(cells)) == [REDUCE]


def test_a_session_before_is_not_this_one(folder: RunFolder) -> None:
    with closing(Journal(folder.path, "gw0")) as journal:
        journal.started(job(SEND))
    cells = RunningCells(folder.path, time.time())
    assert seen(cells) == {}


def test_half_lines_and_garbage_wait_or_are_passed_over(folder: RunFolder) -> None:
    cells = RunningCells(folder.path, time.time())
    with closing(Journal(folder.path, "gw0")) as journal:
        journal.planned(job(SEND))
    whole = journal.path.read_bytes()
    journal.path.write_bytes(b'\xff{"event": "started"}\n[1]\n{"event":"started","epoch":"x"}\n' + whole[:40])
    assert seen(cells) == {}
    with journal.path.open("ab") as file:
        file.write(whole[40:])
    assert seen(cells) == {SEND: WAITING}


def test_the_last_line_is_safe_to_show() -> None:
    assert last_line(b"a\n\x1b[31mred\x1b[0m \x07<b>\n  \n") == "red <b>"
    assert last_line(b"token=ghp_" + b"s3cr3t12" * 5) == "token=[redacted]"
    assert last_line(b"") == ""
    assert last_line(b"\xff\xfe") != ""
    assert len(last_line(b"x" * 10_000)) <= 300


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq9\nMIIE", "[redacted]"),
        (b"x\nAuthorization: Bearer abcdefgh", "Authorization: [redacted]"),
        (b"x\npushes to ghp_s3cr3", "pushes to [redacted]"),
        (b"x\nreads zebra7cross", "reads [redacted]"),
        (b"x\nreads zebra7cross\n", "reads zebra7cross"),
        (b"x\nreads secr\xffet", "reads [redacted]"),
        (b"x\nthird, not ended", "third, not ended"),
    ],
)
def test_no_part_of_a_secret_is_shown(data: bytes, shown: str) -> None:
    register_secrets({"MY_TOKEN": "zebra7crossing", "OTHER_TOKEN": os.fsdecode(b"secr\xffetvalue")})
    try:
        assert last_line(data) == shown
    finally:
        clear_secrets()


def test_a_line_that_begins_before_what_is_read_is_not_shown(folder: RunFolder) -> None:
    cells = RunningCells(folder.path, time.time())
    log = folder.start_log(SEND)
    with closing(Journal(folder.path, "gw0")) as journal:
        journal.planned(job(SEND))
        journal.started(job(SEND))
        log.write_bytes(b"-----BEGIN RSA PRIVATE KEY-----\n" + b"MIIEowIBAAKCAQEA7bq9\n" * 600)
        assert seen(cells) == {SEND: "[redacted]"}
        log.write_bytes(b"token=" + b"abcdefgh" * 5000)
        assert seen(cells) == {SEND: ""}


def test_records_of_ranks_are_put_into_words() -> None:
    row = b'@hetgpu:0184:f3ee67a3:{"t":"row","op":"allreduce","size":65536,"dtype":"float32","ranks":2}\n'
    assert last_line(row) == "measured allreduce, 64K float32"
    assert last_line(b'@hetgpu:0021:09862b74:{"t":"done","rank":0}') == "rank 0: done"
    assert last_line(b'@hetgpu:0021:09862b74:{"t":"x"}') == '@hetgpu:0021:09862b74:{"t":"x"}'


def test_a_tick_costs_little(folder: RunFolder) -> None:
    cells = RunningCells(folder.path, time.time())
    log = folder.start_log(SEND)
    log.write_bytes(b"a line of output\n" * 1000)
    with closing(Journal(folder.path, "gw0")) as journal:
        journal.started(job(SEND))
        took = []
        for _ in range(20):
            with log.open("ab") as file:
                file.write(b"another\n")
            before = time.thread_time()
            cells.now()
            took.append(time.thread_time() - before)
    print(f"a look at a running cell: {min(took) * 1e6:.0f} us of processor time")
    assert min(took) < 0.01
