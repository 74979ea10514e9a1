"""`hetgpu history`: since when cells fail."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.cli.history import HistoryOptions, run
from pytest_hetgpu.cli.main import main
from pytest_hetgpu.errors import HistoryError, UsageError
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import history
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary

OK = CellSummary("aws", "cpu-ob1-send", Kind.PASSED, Verdict.OK, facts={"ucx": "1.18.0"})
SKIPPED = replace(OK, scenario="gpu-nccl-send", kind=Kind.SKIPPED, verdict=Verdict.NOT_RUN)
CRASH = replace(OK, kind=Kind.CRASH, verdict=Verdict.NEW, signature="SIGSEGV@libuct.so", facts={"ucx": "1.20.0"})
NIGHT = 86_400.0


def night(number: int, *cells: CellSummary, host: str = "ci1") -> RunSummary:
    matrices = (MatrixFile("aws", "aws.yaml", "0" * 64),)
    return RunSummary(f"r{number}", f"/r/{number}", 1.7e9 + NIGHT * number, host, "0.1", matrices, cells)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Ten nights: one cell breaks on the seventh, one is flaky, one was mended, two are always the same."""
    path = tmp_path / "history.sqlite"
    for number in range(10):
        broken = replace(CRASH if number >= 6 else OK, scenario="cpu-ucx-send")
        flaky = replace(CRASH if number in (1, 4, 8) else OK, scenario="cpu-ucx-reduce")
        mended = replace(OK if number >= 8 else CRASH, scenario="cpu-ofi-send")
        known = replace(CRASH, scenario="cpu-shm-guarded", verdict=Verdict.KNOWN)
        host = "ci2" if number >= 6 else "ci1"
        history.put(path, night(number, OK, broken, flaky, mended, known, SKIPPED, host=host))
    return path


def printed(path: Path, last: int = 60) -> list[str]:
    lines: list[str] = []
    assert run(path, HistoryOptions(last), lines.append) == 0
    return lines


def test_since_when_a_cell_fails_and_what_changed_then(file: Path) -> None:
    assert printed(file) == [
        "10 runs, 2023-11-14 22:13 UTC to 2023-11-23 22:13 UTC, the newest right",
        "",
        "......NNNN  cpu-ucx-send",
        "  crash SIGSEGV@libuct.so since 2023-11-20 22:13 UTC (r6), was ok for 6 runs",
        "  then ucx 1.18.0 became 1.20.0",
        "  then host of pytest ci1 became ci2",
        "",
        ".N..N...N.  cpu-ucx-reduce",
        "  flaky: 3 of 10 runs fail, 11 to 60 %; now ok",
        "",
        "NNNNNNNN..  cpu-ofi-send",
        "  ok since 2023-11-22 22:13 UTC (r8), was crash SIGSEGV@libuct.so for 8 runs",
        "  then ucx 1.20.0 became 1.18.0",
        "",
        "1 cell is always ok",
        "1 cell is always crash SIGSEGV@libuct.so",
        "1 cell was never run",
    ]


def test_only_the_newest_runs(file: Path) -> None:
    lines = printed(file, 3)
    assert lines[0].startswith("3 runs, ")
    assert "NNN  cpu-ucx-send" not in lines
    assert "N..  cpu-ofi-send" in lines


def test_mistakes(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="--last: 0 is not a number of runs from 1 to 10,000"):
        run(file, HistoryOptions(0), print)
    with pytest.raises(HistoryError, match="there is no history"):
        run(tmp_path / "none.sqlite", HistoryOptions(), print)
    assert main(["history", "--history", str(tmp_path / "none.sqlite")]) == 4
    assert capsys.readouterr().err == f"ERROR: there is no history {tmp_path}/none.sqlite\n"


def test_sixty_nights_of_two_hundred_cells_are_read_in_seconds(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    cells = [replace(OK, scenario=f"a-b-{number}") for number in range(200)]
    for number in range(60):
        broken = replace(CRASH, scenario="a-b-7") if number > 40 else cells[7]
        history.put(path, night(number, *cells[:7], broken, *cells[8:]))
    began = time.process_time()
    lines = printed(path)
    assert time.process_time() - began < 3
    assert f"{'.' * 41}{'N' * 19}  a-b-7" in lines


def test_a_clock_that_was_far_off_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    for number, cell in ((0, OK), (1, CRASH)):
        history.put(path, replace(night(number, cell), started=5e11 + number))
    assert printed(path)[0] == "2 runs, 5e+11 s after 1970 to 5e+11 s after 1970, the newest right"
