"""mpi4py.bench: real output under three MPIs."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.readers.base import measurements
from pytest_hetgpu.extensions.readers.mpi4py_bench import Mpi4pyBenchParser
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind
from tests.extensions.readers.feeding import read, sample, values

STACKS = ("openmpi-5", "openmpi-4", "mpich")
HEADER = "# MPI PingPong Test\n# Size [B]  Bandwidth [MB/s] | Time Mean [s] \u00b1 StdDev [s]  Samples\n"
RING = "time for 50 loops = 0.5 seconds (2 processes, 8 bytes)\n"


@pytest.mark.parametrize("stack", STACKS)
def test_pingpong(stack: str) -> None:
    found = sample("mpi4py_bench", f"mpi4py-pingpong-{stack}")
    assert (found.tool, found.warnings, found.operations) == ("mpi4py.bench", (), ("send_recv",))
    assert [one.point.size for one in found.rows] == [1 << power for power in range(17)]
    assert [one.iterations for one in found.rows] == [10_000] * 15 + [1000] * 2
    assert {(one.ranks, one.wrong, one.point.dtype) for one in found.rows} == {(2, None, "uint8")}
    assert all(set(one.figures) == {"algbw", "latency", "deviation"} for one in found.rows)


def test_megabytes_are_1e6_and_a_time_is_one_way() -> None:
    last = sample("mpi4py_bench", "mpi4py-pingpong-mpich").rows[-1]
    assert values(last)["algbw"] == pytest.approx(767.76 * 1e6 / 1e9)
    assert last.seconds is not None
    assert last.seconds == pytest.approx(8.5359949e-05)
    assert values(last)["algbw"] == pytest.approx(last.point.size / last.seconds / 1e9, rel=1e-4)


def test_without_statistics_there_is_a_bandwidth_only() -> None:
    found = sample("mpi4py_bench", "mpi4py-pingpong-no-stats-stopped")
    assert [set(one.figures) for one in found.rows] == [{"algbw"}] * 5
    assert found.missing([MessagePoint(4096, "uint8")]) == (MessagePoint(4096, "uint8"),)


def test_without_a_header_too() -> None:
    row = "        64              1.14\n"
    assert len(read("mpi4py_bench", row, argv="pingpong --no-header --no-stats").rows) == 1
    found = read("mpi4py_bench", row)
    assert (found.rows, found.warnings[0]) == ((), "rows without a header above them (line 1)")


def test_more_ranks_than_play() -> None:
    assert {one.ranks for one in sample("mpi4py_bench", "mpi4py-pingpong-mpich", ranks=4).rows} == {2}


def test_a_rank_that_plays_with_itself_has_no_bandwidth() -> None:
    found = sample("mpi4py_bench", "mpi4py-pingpong-alone", ranks=1)
    assert {item.metric for item in measurements(found)} == {"latency", "deviation"}


@pytest.mark.parametrize("stack", STACKS)
def test_ringtest(stack: str) -> None:
    found = sample("mpi4py_bench", f"mpi4py-ringtest-{stack}", ranks=3)
    (only,) = found.rows
    assert (only.operation, only.point, only.ranks, only.iterations, only.wrong) == (
        *("ringtest", MessagePoint(1024, "uint8"), 3),
        *(50, 0),
    )
    assert set(only.figures) == {"latency"}
    assert {item.metric for item in measurements(found)} == {"latency"}


def test_a_ringtest_s_time_is_of_one_loop() -> None:
    assert read("mpi4py_bench", RING).rows[0].seconds == pytest.approx(0.01)


@pytest.mark.parametrize("before", [True, False])
def test_a_ringtest_whose_message_differs(before: bool) -> None:
    warning = "/site-packages/mpi4py/bench.py:152: UserWarning: received message does not match!\n"
    found = read("mpi4py_bench", warning + RING if before else RING + warning)
    assert [one.wrong for one in found.rows] == [1]
    exited = Mpi4pyBenchParser.meaning_of_exit(0, found)
    assert exited is not None
    assert exited.kind is Kind.WRONG_RESULT


def test_single_rank_jobs_are_not_a_job() -> None:
    """MPICH's mpirun started ranks of Open MPI: each is alone, and all exit with 0."""
    found = sample("mpi4py_bench", "mpi4py-ringtest-crossed")
    assert found.warnings == (
        "2 ranks were asked for, the job has 1",
        "2 single-rank jobs ran: nothing moved between ranks",
    )
    assert {one.ranks for one in found.rows} == {1}


@pytest.mark.parametrize("stack", STACKS)
def test_helloworld_measures_nothing_and_shows_the_world(stack: str) -> None:
    found = sample("mpi4py_bench", f"mpi4py-helloworld-{stack}")
    assert (found.rows, found.warnings) == ((), ())
    alone = read("mpi4py_bench", "Hello, World! I am process 0 of 1 on vm.\n" * 3)
    assert alone.warnings == ("3 single-rank jobs ran: nothing moved between ranks",)


def test_futures() -> None:
    found = sample("mpi4py_bench", "mpi4py-futures")
    assert (len(found.rows), found.operations, found.warnings) == (7, ("futures",), ())
    assert found.rows[0].figures["task_rate"] == (349.0, "1/s")
    assert {item.metric for item in measurements(found)} == {"latency", "task_rate", "deviation"}


def test_two_jobs_in_one_output() -> None:
    text = HEADER + "         1              0.01 | 7.3429178e-05 \u00b1 8.0480e-04    10000\n"
    assert read("mpi4py_bench", text * 2).warnings == ("2 jobs printed into one output",)


def test_the_sign_may_come_out_as_anything() -> None:
    for sign in ("\u00b1", "\ufffd", "\u00c2\u00b1", "?"):
        row = f"         1              0.01 | 7.3429178e-05 {sign} 8.0480e-04    10000\n"
        assert len(read("mpi4py_bench", HEADER + row).rows) == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HEADER, "a table's header, and no row that can be read (line 2)"),
        ("", "no table: the program measured nothing"),
        (HEADER + "9" * 30 + " 1.0 | 1e-6 \u00b1 0.0000e+00   9\n", "the size is no whole number (line 3)"),
        (HEADER + "   8   1.0\n", "a row with fewer or more columns than the header has (line 3)"),
        (HEADER + "   8   1.0 | 7.3\n", "a row that cannot be read (line 3)"),
        (HEADER + "   8   nan | nan \u00b1 0.0000e+00   0\n", "algbw is not finite (line 3)"),
        (HEADER + "   8   -1.0 | 1e-6 \u00b1 0.0000e+00   9\n", "algbw is negative (line 3)"),
        (
            "# Size [B]  Bandwidth [MiB/s]\n   8   1.0\n",
            "unlike any header: '# Size [B]  Bandwidth [MiB/s]'; its rows are",
        ),
        ("time for 0 loops = 0 seconds (2 processes, 8 bytes)\n", "a ringtest without loops, ranks, size or time"),
    ],
)
def test_what_is_wrong_is_said(text: str, complaint: str) -> None:
    found = read("mpi4py_bench", text)
    assert any(said.startswith(complaint) for said in found.warnings), found.warnings
