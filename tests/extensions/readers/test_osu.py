"""OSU micro-benchmarks: real output of 5.3, 7.0 and 7.4, and errors in it."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.readers.base import measurements
from pytest_hetgpu.extensions.readers.osu import OsuParser
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind
from tests.extensions.readers.feeding import read, sample, values

GPU = """\
# OSU MPI-CUDA Allreduce Latency Test v7.4
# Datatype: MPI_FLOAT.
# Size       Avg Latency(us)        Validation
1048576              1000.00              Pass
"""


@pytest.mark.parametrize(
    ("name", "version", "rows", "operation", "dtype", "figures"),
    [
        ("osu-5.3-allreduce-full", "5.3", 9, "allreduce", "float32", {"latency", "latency_min", "latency_max"}),
        ("osu-7.0-allreduce-full", "7.0", 8, "allreduce", "float32", {"latency", "latency_min", "latency_max"}),
        ("osu-7.0-reduce-scatter", "7.0", 5, "reduce_scatter", "float32", {"latency"}),
        ("osu-7.0-latency", "7.0", 5, "send_recv", "int8", {"latency"}),
        ("osu-7.0-bw", "7.0", 7, "send_recv", "int8", {"bandwidth"}),
        ("osu-7.0-bibw", "7.0", 5, "bidirectional_send_recv", "int8", {"bidirectional_bandwidth"}),
        ("osu-7.0-mbw-mr", "7.0", 5, "send_recv", "int8", {"aggregate_bandwidth", "message_rate"}),
        ("osu-7.0-iallreduce", "7.0", 4, "iallreduce", "float32", {"overall", "compute", "latency", "overlap"}),
        ("osu-7.0-barrier", "7.0", 1, "barrier", "none", {"latency"}),
        ("osu-7.0-barrier-full", "7.0", 1, "barrier", "none", {"latency", "latency_min", "latency_max"}),
        ("osu-7.4-bw", "7.4", 3, "send_recv", "int8", {"bandwidth"}),
        ("osu-7.4-mbw-mr", "7.4", 3, "send_recv", "int8", {"aggregate_bandwidth", "message_rate"}),
        (
            *("osu-7.4-allreduce-tail", "7.4", 4, "allreduce", "int8"),
            {"latency", "latency_p50", "latency_p90", "latency_p99"},
        ),
    ],
)
def test_real_tables(name: str, version: str, rows: int, operation: str, dtype: str, figures: set[str]) -> None:
    found = sample("osu", name)
    assert (found.tool, found.version, len(found.rows), found.warnings) == ("osu", version, rows, ())
    assert {row.operation for row in found.rows} == {operation}
    assert {row.point.dtype for row in found.rows} == {dtype}
    assert all(set(row.figures) == figures for row in found.rows)


def test_a_collective_prints_a_latency_only_and_the_bandwidths_are_computed() -> None:
    """busbw = size x 2(n-1)/n / (t x 1e3) GB/s."""
    found = read("osu", GPU, ranks=4)
    (row,) = found.rows
    assert set(row.figures) == {"latency"}
    assert found.memory == "cuda"
    shown = {item.metric: item for item in measurements(found)}
    assert (shown["latency"].unit, shown["busbw"].unit) == ("us", "GB/s")
    assert shown["latency"].value == pytest.approx(1000.0)
    assert shown["busbw"].value == pytest.approx(1048576 * 2 * 3 / 4 / (1000.0 * 1e3))


def test_megabytes_are_1e6() -> None:
    row = sample("osu", "osu-7.0-bw").rows[0]
    assert values(row) == {"bandwidth": pytest.approx(102.72 * 1e6 / 1e9)}
    assert row.seconds is None


def test_figures_of_a_window_are_no_algbw() -> None:
    for name in ("osu-7.0-bw", "osu-7.0-bibw", "osu-7.0-mbw-mr"):
        assert not {item.metric for item in measurements(sample("osu", name))} & {"algbw", "busbw", "latency"}


def test_iterations_are_known_with_f_only() -> None:
    assert {row.iterations for row in sample("osu", "osu-7.0-allreduce-full").rows} == {50}
    assert {row.iterations for row in sample("osu", "osu-7.0-latency").rows} == {None}


def test_a_column_of_checks_is_read_and_none_is_unchecked() -> None:
    points = [MessagePoint(8, "float32")]
    checked, found = sample("osu", "osu-7.0-allreduce-checked"), sample("osu", "osu-7.0-allreduce-full")
    assert {row.wrong for row in checked.rows} == {0}
    assert checked.unchecked(points) == ()
    assert {row.wrong for row in found.rows} == {None}
    assert found.unchecked(points) == tuple(points)
    assert found.missing(points) == ()


def test_a_failed_check_ends_its_table_and_the_next_type_begins_another() -> None:
    found = sample("osu", "osu-7.4-allreduce-types")
    assert [(str(row.point), row.wrong) for row in found.rows] == [
        ("8,int8", 0),
        ("16,int8", 1),
        ("8,int32", 1),
        ("8,float32", 1),
    ]
    assert found.version == "7.4"  # whose check of reductions fails where that of 7.0 passes
    assert "on message size 8" in found.failed[0]
    owed = [MessagePoint(8, "int8"), MessagePoint(32, "int8")]
    assert found.missing(owed) == (MessagePoint(32, "int8"),)
    exited = OsuParser.meaning_of_exit(1, found)
    assert exited is not None
    assert exited.kind is Kind.WRONG_RESULT


def test_a_failed_check_that_no_row_shows() -> None:
    text = "# OSU MPI Broadcast Latency Test v6.2\n# Size       Avg Latency(us)\n4  1.00\n8  1.00\n"
    found = read("osu", text + "DATA VALIDATION ERROR: ./osu_bcast exited with status 1 on message size 8.\n")
    assert [row.wrong for row in found.rows] == [None, 1]


@pytest.mark.parametrize(
    ("name", "ranks", "first", "last"),
    [
        ("osu-7.0-allgather", 3, 64 * 3, 256 * 3),
        ("osu-5.3-alltoall", 3, 3, 256 * 3),
        ("osu-7.0-reduce-scatter", 2, 64, 1024),
    ],
)
def test_a_block_s_size_becomes_the_whole(name: str, ranks: int, first: int, last: int) -> None:
    sizes = [row.point.size for row in sample("osu", name, ranks=ranks).rows]
    assert (sizes[0], sizes[-1]) == (first, last)


def test_without_ranks_a_block_s_size_is_not_guessed() -> None:
    found = sample("osu", "osu-7.0-allgather", ranks=None)
    assert found.rows == ()
    assert found.warnings[0].startswith("how many ranks took part must be known to compute allgather's size (line 4")


def test_two_ranks_play() -> None:
    found = sample("osu", "osu-7.0-bw", ranks=4)
    assert {row.ranks for row in found.rows} == {2}
    assert found.warnings == ("4 ranks were asked for, and this program runs with 2",)
    assert {row.ranks for row in sample("osu", "osu-7.0-mbw-mr", ranks=4).rows} == {4}


def test_in_place_is_what_was_asked_for() -> None:
    """The program prints nothing about it."""
    points = [MessagePoint(8, "int8", "in")]
    found = sample("osu", "osu-7.4-allreduce-in-place", argv="osu_allreduce -l", points=points)
    assert found.missing(points) == ()
    assert sample("osu", "osu-7.4-allreduce-in-place").missing(points) == tuple(points)


def test_a_program_that_did_not_run() -> None:
    found = sample("osu", "osu-7.0-alone")
    assert found.rows == ()
    assert found.warnings == ("no table: the program measured nothing",)
    exited = OsuParser.meaning_of_exit(1, found)
    assert exited is not None
    assert exited.kind is Kind.ERROR


def test_a_stopped_table_misses_what_was_owed() -> None:
    found = sample("osu", "osu-5.3-latency-stopped")
    assert found.missing([MessagePoint(0, "int8"), MessagePoint(1 << 22, "int8")]) == (MessagePoint(1 << 22, "int8"),)


def test_a_table_of_windows_is_not_read_as_bandwidths() -> None:
    found = sample("osu", "osu-7.0-mbw-mr-varied")
    assert found.rows == ()
    assert found.warnings[0].startswith("unlike any header: '# Uni-directional Bandwidth (MB/sec)'")


HEADER = (
    "# OSU MPI Allreduce Latency Test v7.0\n"
    "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n"
)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HEADER, "a table's header, and no row that can be read (line 2)"),
        (HEADER + "8   1.23   1.2\n", "a row of 3 columns below a header of 5 (line 3)"),
        (HEADER + "8   nan   1.2  1.3 20\n", "Avg Latency(us) is not finite (line 3)"),
        (HEADER + "8   inf   1.2  1.3 20\n", "Avg Latency(us) is not finite (line 3)"),
        (HEADER + "8   -1.23   1.2  1.3 20\n", "Avg Latency(us) is negative (line 3)"),
        (HEADER + "8   1.2[vm:1:0] UCX WARN\n", "a row that something else was printed into (line 3)"),
        (HEADER + "8.5   1.2 1.2 1.2 20\n", "the size is '8.5', no whole number (line 3)"),
        ("8   1.2\n", "rows without a header above them (line 1)"),
        (
            "# OSU MPI Latency Test v9\n# Size    Jitter(us)\n8  1\n",
            "unlike any header: '# Size    Jitter(us)'; its rows are",
        ),
    ],
)
def test_what_is_wrong_is_said(text: str, complaint: str) -> None:
    found = read("osu", text)
    assert [said for said in found.warnings if said.startswith(complaint)], found.warnings
    assert all("latency" not in row.figures for row in found.rows)


def test_logs_of_wrong_elements_between_rows_are_no_rows() -> None:
    log = "Size: 8, Iteration:0, Datatype: MPI_FLOAT\nPosition  Expected  Actual\n0   4.000000   2.000000\n"
    found = read("osu", GPU + log)
    assert len(found.rows) == 1
    assert found.warnings == ("lines of numbers whose check is neither Pass nor Fail: no rows (line 7)",)


@pytest.mark.parametrize(
    ("title", "tool", "operation"),
    [
        ("MPI All-to-All Personalized Exchange Latency Test v7.4", "osu", "alltoall"),
        ("MPI-ROCM Broadcast Latency Test v5.9", "osu", "broadcast"),
        ("MPI-CUDA Non-blocking Allgather Latency Test v7.4", "osu", "iallgather"),
        ("MPI Neighborhood Alltoall Latency Test v7.4", "osu", "neighbor_alltoall"),
        ("MPI Allreduce Persistent Latency Test v7.3", "osu", "allreduce_persistent"),
        ("MPI Reduce_scatter_block Latency Test v7.4", "osu", "reduce_scatter_block"),
        ("MPI Multi-threaded Latency Test v7.0", "osu", "threaded_send_recv"),
        ("MPI Multi Latency Test v7.0", "osu", "multi_send_recv"),
        ("MPI_Put-CUDA Latency Test v5.8", "osu", "put"),
        ("NCCL-CUDA Allreduce Latency Test v7.3", "osu-nccl", "allreduce"),
        ("RCCL-ROCM Allgather Latency Test v7.3", "osu-rccl", "allgather"),
        ("MPI Latency Test", "osu", "send_recv"),
    ],
)
def test_titles(title: str, tool: str, operation: str) -> None:
    """Composed from the `BENCHMARK` strings of c/mpi and c/xccl, 7.4."""
    found = read("osu", f"# OSU {title}\n# Size       Avg Latency(us)\n8    1.5\n")
    assert (found.tool, found.operations, found.warnings) == (tool, (operation,), ())


def test_where_the_buffers_are() -> None:
    text = "# OSU MPI-CUDA Latency Test v5.8\n# Send Buffer on DEVICE (D) and Receive Buffer on HOST (H)\n"
    assert read("osu", text + "# Size          Latency (us)\n8   1\n").memory == "DEVICE (D) to HOST (H)"
