"""The table of nccl-tests and rccl-tests: definitions, and the traps of reading it."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.readers._nccl import library_version
from pytest_hetgpu.extensions.readers.base import measurements
from pytest_hetgpu.extensions.readers.nccl_tests import NcclTestsParser
from pytest_hetgpu.model.program_output import BenchmarkResult
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind
from tests.extensions.readers.feeding import read, values
from tests.extensions.readers.nccl_text import (
    BASE,
    GROUP,
    PER_ITERATION,
    RCCL,
    RCCL_FOOTER,
    banner,
    footer,
    header,
    row,
)

GOOD = ("100.00", "10.49", "10.49", "0")
MEBI = 1 << 20


def table(*rows: str, ranks: int = 2, program: str = "all_reduce_perf", end: str = "") -> BenchmarkResult:
    return read("nccl_tests", banner(ranks, program=program) + header() + "".join(rows) + (end or footer()), ranks=None)


def test_thirteen_columns() -> None:
    found = table(row(MEBI, *GOOD, "200.00", "5.24", "5.24", "0"))
    assert (found.tool, found.version, found.versions) == ("nccl-tests", "2.19.6", {"nccl": "2.29.7"})
    assert found.warnings == found.failed == ()
    out, into = found.rows
    assert (out.operation, out.point, out.ranks, out.iterations, out.wrong) == (
        *("allreduce", MessagePoint(MEBI, "float32"), 2),
        *(20, 0),
    )
    assert values(out) == {"latency": pytest.approx(1e-4), "algbw": 10.49, "busbw": 10.49}
    assert into.point == MessagePoint(MEBI, "float32", "in")
    assert into.seconds == pytest.approx(2e-4)


def test_bandwidths_are_computed_of_the_time_that_has_more_digits() -> None:
    """At 8 bytes the table shows 0.00."""
    found = table(row(8, "8.00", "0.00", "0.00", "0", "8.00", "0.00", "0.00", "0"), ranks=4)
    shown = {item.name: item.value for item in measurements(found)}
    assert shown["algbw[8,float32]"] == pytest.approx(8 / 8e-6 / 1e9)
    assert shown["busbw[8,float32,in]"] == pytest.approx(8 / 8e-6 / 1e9 * 1.5)
    assert found.warnings == ()


def test_twenty_one_columns() -> None:
    cells = (*GOOD, "99.0", "120.5", "119.0", "4.20")
    text = banner() + header((*GROUP, *PER_ITERATION)) + row(MEBI, *cells, *cells) + footer()
    found = read("nccl_tests", text, ranks=None)
    assert found.warnings == ()
    assert len(found.rows) == 2
    assert values(found.rows[1])["iteration_p99"] == pytest.approx(119e-6)
    assert found.rows[1].figures["iteration_variation"] == (4.2, "%")


def test_numbers_may_have_exponents() -> None:
    found = table(row(MEBI, "1.2e+08", "1e-02", "1e-02", "1e+06", "1e+08", "0.01", "0.01", "0"))
    assert found.rows[0].seconds == pytest.approx(120.0)
    assert [one.wrong for one in found.rows] == [1_000_000, 0]


def test_unchecked_is_never_0() -> None:
    """With `-c 0` the summary prints OK all the same."""
    found = table(row(MEBI, "100.00", "10.49", "10.49", "N/A", "100.00", "10.49", "10.49", "N/A"))
    points = [MessagePoint(MEBI, "float32", place) for place in ("", "in")]
    assert [one.wrong for one in found.rows] == [None, None]
    assert found.unchecked(points) == tuple(points)
    assert found.missing(points) == ()


def test_sendrecv_is_not_checked_in_place() -> None:
    found = table(row(MEBI, *GOOD, "100.00", "10.49", "10.49", "N/A"), program="sendrecv_perf")
    assert [(one.operation, one.wrong) for one in found.rows] == [("send_recv", 0), ("send_recv", None)]


def test_one_rank_moves_nothing() -> None:
    found = table(row(MEBI, "10.00", "104.86", "0.00", "0", "10.00", "104.86", "0.00", "0"), ranks=1)
    assert found.warnings == ("1 rank: nothing moved, no figure is a bandwidth",)
    assert {item.metric for item in measurements(found)} == {"latency"}
    assert all(set(one.figures) == {"latency"} for one in found.rows)


def test_single_rank_jobs_are_not_a_job() -> None:
    alone = banner(1) + header() + row(8, "10.00", "0.00", "0.00", "0", "10.00", "0.00", "0.00", "0") + footer()
    found = read("nccl_tests", alone * 4, ranks=4)
    assert found.warnings == (
        "4 ranks were asked for, the job has 1",
        "4 single-rank jobs ran, not one of 4 ranks (built without MPI?): nothing moved, no figure is a bandwidth",
    )


def test_two_jobs_in_one_output() -> None:
    job = banner() + header() + row(MEBI, *GOOD, *GOOD) + footer()
    assert read("nccl_tests", job * 2).warnings == ("2 jobs printed into one output",)


def test_zero_bandwidths_without_a_list_of_devices() -> None:
    text = header() + row(MEBI, "10.00", "104.86", "0.00", "0", "10.00", "104.86", "0.00", "0") + footer()
    found = read("nccl_tests", text, argv="mpirun all_reduce_perf -b 1M")
    assert found.warnings[0] == "every busbw is 0: single-rank jobs, nothing moved"


def test_ranks_of_a_split_job_are_those_of_the_first_group() -> None:
    text = banner(4).replace("Rank  2 Group  0", "Rank  2 Group  1").replace("Rank  3 Group  0", "Rank  3 Group  1")
    found = read("nccl_tests", text + header() + row(MEBI, *GOOD, *GOOD) + footer(), ranks=None)
    assert {one.ranks for one in found.rows} == {2}
    assert found.warnings == ()


def test_a_busbw_of_other_ranks_is_seen() -> None:
    found = table(row(MEBI, *GOOD, *GOOD), ranks=8)
    assert found.warnings == (
        "busbw is not what 8 ranks make of algbw in allreduce: '10.49 of 10.49' (line 18 and 1 more)",
    )


@pytest.mark.parametrize(
    ("program", "operation", "busbw"),
    [
        ("all_reduce_perf", "allreduce", "15.00"),
        ("all_gather_perf", "allgather", "7.50"),
        ("reduce_scatter_perf", "reduce_scatter", "7.50"),
        ("alltoall_perf_mpi", "alltoall", "7.50"),
        ("alltoallv_perf", "alltoallv", "7.50"),
        ("gather_perf", "gather", "7.50"),
        ("scatter_perf", "scatter", "7.50"),
        ("broadcast_perf", "broadcast", "10.00"),
        ("reduce_perf", "reduce", "10.00"),
        ("sendrecv_perf", "send_recv", "10.00"),
        ("hypercube_perf", "hypercube", "10.00"),
    ],
)
def test_each_program_has_its_factor(program: str, operation: str, busbw: str) -> None:
    cells = ("104.86", "10.00", busbw, "0")
    found = table(row(MEBI, *cells, *cells), ranks=4, program=program)
    assert found.operations == (operation,)
    assert found.warnings == ()


def test_cpu_time_is_no_latency() -> None:
    cells = ("12.00", "10.49", "10.49", "0")
    text = banner() + header(("cputime", *GROUP[1:])) + row(MEBI, *cells, *cells) + footer()
    found = read("nccl_tests", text, ranks=None)
    assert found.rows[0].seconds is None
    shown = {item.metric: item.value for item in measurements(found)}
    assert shown == {"cpu_time": pytest.approx(12.0), "algbw": 10.49, "busbw": 10.49}


def test_timestamps_at_the_end_of_rows() -> None:
    head = header().replace("#wrong \n", "#wrong            timestamp\n")
    text = banner() + head + row(MEBI, *GOOD, *GOOD, "2026-07-09", "12:00:00") + footer()
    found = read("nccl_tests", text, ranks=None)
    assert (len(found.rows), found.warnings) == (2, ())


def test_wrong_data() -> None:
    found = table(row(MEBI, "100.00", "10.49", "10.49", "12", *GOOD), end=footer(wrong=1))
    assert [one.wrong for one in found.wrong] == [12]
    assert found.failed == ("Out of bounds values : 1 FAILED",)


def test_a_summary_that_rows_do_not_bear_out() -> None:
    found = table(row(MEBI, *GOOD, *GOOD), end=footer(wrong=1))
    assert found.warnings == ("the summary counts wrong data, and no row does",)


def test_the_average_over_all_sizes_is_no_measurement() -> None:
    assert 12.5 not in {item.value for item in measurements(table(row(MEBI, *GOOD, *GOOD)))}


@pytest.mark.parametrize("kept", [13, 12, 9, 8, 5, 2])
def test_a_row_that_breaks_off(kept: int) -> None:
    """The job hung or died in mid-row: only whole places are read."""
    cut = "  ".join(row(MEBI, *GOOD, *GOOD).split()[:kept])
    found = read("nccl_tests", banner() + header() + cut, ranks=None)
    assert len(found.rows) == (2 if kept == 13 else 1 if kept >= 9 else 0)
    assert "the table is not closed: the program did not come to its end" in found.warnings
    broken = [said for said in found.warnings if "breaks off" in said]
    assert bool(broken) is (2 < kept < 13)


def test_nccl_s_own_lines_within_a_row() -> None:
    cut = row(MEBI, *GOOD[:1]).rstrip("\n") + "node:1:2 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7 count 2 op 0\n"
    found = read("nccl_tests", banner() + header() + cut + row(2 * MEBI, *GOOD, *GOOD) + footer(), ranks=None)
    assert {one.point.size for one in found.rows} == {2 * MEBI}
    assert found.warnings[0].startswith("a row breaks off after 6 of 13 columns")
    strange = read("nccl_tests", banner() + header() + row(MEBI, "100.00", "lost", "1", "0", *GOOD) + footer())
    assert strange.warnings[0] == "a row that something else was printed into (line 12)"
    assert strange.rows == ()


def test_a_row_that_nccl_s_own_lines_cut_in_three() -> None:
    """`NCCL_DEBUG=INFO` with COLL, on a terminal: head, out of place and in place are printed one by one."""
    log = "node-a:65704:65722 [1] NCCL INFO AllReduce: opCount 0 sendbuff 0x7 count 2 op 0 root 0\n"
    head, out, into = (
        row(MEBI).rstrip("\n"),
        "  " + "  ".join(GOOD[:3]) + "  1e+05",
        "  " + "  ".join(GOOD[:3]) + "  N/A",
    )
    text = banner() + header() + head + log + log + out + log + log + into + log + row(8, *GOOD, *GOOD) + footer()
    found = read("nccl_tests", text, ranks=None)
    assert [(one.point.size, one.wrong) for one in found.rows] == [(MEBI, 100_000), (MEBI, None), (8, 0), (8, 0)]
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("cells", "complaint"),
    [
        (("nan", "10.49", "10.49", "0"), "time is not finite"),
        (("inf", "0.00", "0.00", "0"), "time is not finite"),
        (("-1.00", "10.49", "10.49", "0"), "time is negative"),
        (("100.00", "10.49", "10.49", "-nan"), "#wrong is not finite"),
    ],
)
def test_numbers_that_are_none(cells: tuple[str, ...], complaint: str) -> None:
    found = table(row(MEBI, *cells, *cells))
    assert any(said.startswith(complaint) for said in found.warnings)
    assert all(one.wrong in (0, None) for one in found.rows)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (banner() + header() + footer(), "a table's header, and no row that can be read (line 10)"),
        (banner(), "no table: the program measured nothing"),
        (row(MEBI, *GOOD, *GOOD), "rows without a header above them (line 1)"),
        (
            "#   size   count   type   redop   time   stretch\n" + row(8, *GOOD),
            "unlike any header: '#   size   count   type   redop   time   stretch'; its rows are not read (line 1)",
        ),
        (
            (header() + row(8, *GOOD, *GOOD)).replace("(us)", "(ms)"),
            "units that are not known: '# (B)  (elements)  (ms)  ",
        ),
    ],
)
def test_what_is_wrong_is_said(text: str, complaint: str) -> None:
    found = read("nccl_tests", text, ranks=None)
    assert any(said.startswith(complaint) for said in found.warnings), found.warnings
    assert found.rows == ()


def test_rccl_tests() -> None:
    text = RCCL + header() + row(8, "9.02", "0.00", "0.00", "0", "8.96", "0.00", "0.00", "0") + RCCL_FOOTER
    found = read("nccl_tests", text, argv="./build/all_reduce_perf -b 8", ranks=2)
    assert (found.tool, found.version, found.operations) == ("rccl-tests", "develop:ae3e635", ("allreduce",))
    assert (len(found.rows), found.warnings) == (2, ())


def test_late_releases_of_rccl_tests_have_a_version() -> None:
    first = "# rccl-tests version 2.17.9-develop:2596ca5 rccl-headers=22803 rccl-library=22707\n"
    found = read("nccl_tests", first + header() + row(MEBI, *GOOD, *GOOD) + footer(), argv="all_reduce_perf")
    assert (found.tool, found.version, found.versions) == ("rccl-tests", "2.17.9-develop:2596ca5", {"rccl": "2.27.7"})


@pytest.mark.parametrize(("code", "version"), [("22907", "2.29.7"), ("2804", "2.8.4"), ("0", ""), ("", ""), ("x", "")])
def test_versions_of_the_library(code: str, version: str) -> None:
    assert library_version(code) == version


def test_rccl_tests_in_place_only() -> None:
    text = RCCL + header(places="in-place") + row(8, "9.02", "0.00", "0.00", "0") + RCCL_FOOTER
    found = read("nccl_tests", text, argv="all_reduce_perf")
    assert [str(one.point) for one in found.rows] == ["8,float32,in"]


def test_releases_whose_last_column_is_a_deviation() -> None:
    group, base = ("time", "algbw", "busbw", "error"), tuple(name for name in BASE if name != "root")
    line = "  8  2  float  sum  9.0  0.00  0.00  {}  9.0  0.00  0.00  {}\n"
    found = read("nccl_tests", header(group, base) + line.format("0e+00", "2e-07") + line.format("1e+00*", "N/A"))
    assert [one.wrong for one in found.rows] == [0, None, 1, None]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((1, Kind.ERROR), (2, Kind.ERROR), (3, Kind.ERROR), (4, Kind.TIMEOUT), (5, Kind.ERROR), (6, Kind.ERROR)),
        *((7, Kind.WRONG_RESULT), (99, Kind.ERROR)),
    ],
)
def test_exit_codes_of_nccl_tests(code: int, kind: Kind) -> None:
    exited = NcclTestsParser.meaning_of_exit(code, table(row(MEBI, *GOOD, *GOOD)))
    assert exited is not None
    assert exited.kind is kind
    assert str(code) in exited.why


def test_seven_is_slow_or_wrong() -> None:
    slow = table(row(MEBI, *GOOD, *GOOD), end=footer(slow="FAILED"))
    assert slow.slow
    wrong = table(row(MEBI, "100.00", "10.49", "10.49", "12", *GOOD), end=footer(wrong=1, slow="FAILED"))
    kinds = [exited.kind for found in (slow, wrong) if (exited := NcclTestsParser.meaning_of_exit(7, found))]
    assert kinds == [Kind.SLOW, Kind.WRONG_RESULT]


def test_rccl_tests_knows_two_exit_codes() -> None:
    text = RCCL + header() + row(8, "9.02", "0.00", "0.00", "3", "8.96", "0.00", "0.00", "0") + RCCL_FOOTER
    wrong = NcclTestsParser.meaning_of_exit(1, read("nccl_tests", text))
    right = NcclTestsParser.meaning_of_exit(0, read("nccl_tests", text.replace("  3  ", "  0  ")))
    other = NcclTestsParser.meaning_of_exit(2, read("nccl_tests", text.replace("  3  ", "  0  ")))
    assert wrong is not None
    assert wrong.kind is Kind.WRONG_RESULT
    assert right is None
    assert other is not None
    assert other.why == "exit code 2"


def test_wrong_data_counts_whatever_the_exit_code() -> None:
    exited = NcclTestsParser.meaning_of_exit(0, table(row(MEBI, "100.00", "10.49", "10.49", "12", *GOOD)))
    assert exited is not None
    assert exited.kind is Kind.WRONG_RESULT
