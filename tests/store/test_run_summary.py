"""What a journal tells of a run, as history keeps it."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu._version import __version__
from pytest_hetgpu.model.outcome import LinkBandwidth
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.cells import RunRecord, read_run
from pytest_hetgpu.store.events import MatrixFile, Run
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.run_summary import PastRun, past, program
from tests.reporting.report_samples import CRASHED, KEY, MEASURED, PASSED, cell, run_cell, scenario

MATRIX = MatrixFile("aws", "aws.yaml", "0" * 64)


def kept(folder: RunFolder) -> PastRun:
    return past(read_run(folder.path), folder.path)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "reports")
    with closing(Journal(folder.path, "main")) as journal:
        journal.run([MATRIX], ["pytest"])
        run_cell(folder, journal, "mixed-ucx-send", PASSED)
        run_cell(folder, journal, "mixed-ucx-allreduce", CRASHED)
        journal.skipped(scenario("mixed-nccl-send"), "not here")
    return folder


def test_everything_that_a_comparison_asks_for(run: RunFolder) -> None:
    found = kept(run)
    assert (found.id, found.folder, found.package) == (run.path.name, str(run.path), __version__)
    assert found.matrices == (MATRIX,)
    assert found.machine
    assert [(one.scenario, one.kind, one.verdict) for one in found.cells] == [
        ("mixed-ucx-send", Kind.PASSED, Verdict.OK),
        ("mixed-ucx-allreduce", Kind.CRASH, Verdict.NEW),
        ("mixed-nccl-send", Kind.SKIPPED, Verdict.NOT_RUN),
    ]
    good, bad, absent = found.cells
    assert (good.measurements, good.transports, good.stack) == (MEASURED, ("tcp",), "Open MPI v5.0.11")
    assert dict(good.axes) == {"placement": "mixed", "transport": "ucx", "workload": "send"}
    assert (bad.signature, bad.why, absent.why) == (KEY, "rank 0 died of SIGSEGV", "not here")


def test_the_wire_is_a_fact_that_small_differences_do_not_change(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "reports")
    with closing(Journal(folder.path, "main")) as journal:
        run_cell(folder, journal, "mixed-ucx-send", replace(PASSED, wire=LinkBandwidth(1.1749, "pump 1, 4 streams")))
        run_cell(folder, journal, "mixed-ucx-recv", replace(PASSED, wire=LinkBandwidth(why="timed out")))
    assert [one.facts for one in kept(folder).cells] == [{"wire": "1.2 GB/s (pump 1, 4 streams)"}, {}]


def test_a_run_keeps_its_name_wherever_it_is_taken(run: RunFolder) -> None:
    elsewhere = run.path.parent / "downloaded"
    run.path.rename(elsewhere)
    assert past(read_run(elsewhere), elsewhere).id == run.path.name


def test_the_link_to_the_newest_run_is_not_its_name(run: RunFolder) -> None:
    latest = run.path.parent / "latest"
    assert past(read_run(latest), latest).folder == str(run.path)


def test_a_journal_without_a_session_still_has_a_time() -> None:
    found = past(RunRecord((cell("a-b-c", PASSED),)), Path("/reports/x"))
    assert (found.id, found.started, found.machine, found.matrices) == ("x", 1.7e9, "", ())


def test_a_clock_that_tells_nonsense() -> None:
    session = Run("0.1.0", (), (), "host", math.nan)
    assert past(RunRecord((), (session,)), Path("/x")).started == 0.0


def test_a_foreign_program_is_told_by_what_it_printed_of_itself() -> None:
    outcome = replace(PASSED, facts={"tool": "osu_allreduce 7.4", "memory": "cuda"})
    (found,) = past(RunRecord((cell("a-b-c", outcome),)), Path("/reports/x")).cells
    assert (found.tool, found.memory) == ("osu_allreduce 7.4", "cuda")


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (
            ("/opt/bin/mpirun", "-np", "2", "env", "A=/x/y.py", "python", "-m", "mpi4py", "/p/allreduce.py"),
            "allreduce.py",
        ),
        (("srun", "/opt/osu/osu_latency", "-m", "8:64"), "osu_latency"),
        (("mpirun", "./build/all_reduce_perf", "-b", "8"), "all_reduce_perf"),
        (("mpirun", "IMB-MPI1", "PingPong"), "IMB-MPI1"),
        (("mpirun", "./mine"), ""),
        (("mpirun", "python", "/p/foreign.py", "--folder", "/opt", "--", "osu_bw", "-c"), "osu_bw"),
        (("mpirun", "python", "/p/foreign.py", "--", "./mine"), ""),
        ((), ""),
    ],
)
def test_the_program_that_measured(argv: tuple[str, ...], name: str) -> None:
    assert program(argv) == name
