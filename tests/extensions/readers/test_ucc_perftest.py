"""ucc_perftest, composed from the format strings of tools/perf/ucc_pt_benchmark.cc of UCC 1.3 and 1.9."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_hetgpu.extensions.readers.base import measurements
from pytest_hetgpu.model.program_output import BenchmarkResult
from pytest_hetgpu.model.records import MessagePoint
from tests.extensions.readers.feeding import read, values


def settings(collective: str, *, late: bool = True, inplace: str = "0", memory: str = "cuda") -> str:
    pairs = [
        *(("Collective: ", collective), ("Memory type: ", memory), ("Datatype: ", "float32"), ("Reduction: ", "sum")),
        *(("Inplace: ", inplace), ("Warmup:", ""), ("  small", "100"), ("  large", "20"), ("Iterations:", "")),
        *(("  small", "1000"), ("  large", "1000")),
        *([("Iteration mode:", "synchronized")] if late else []),
    ]
    return "".join(f"{name:<24s}{value}\n" for name, value in pairs) + "\n"


def table(*rows: Sequence[str], full: bool = True, title: str = "Bus Bandwidth, GB/s") -> str:
    first = f"{'Count':>12s}{'Size':>12s}{'Time, us':>24s}" + (f"{title:>42s}" if full else "")
    second = f"{'avg':>36s}{'min':>12s}{'max':>12s}" + (f"{'avg':>12s}{'max':>12s}{'min':>12s}" if full else "")
    return "\n".join([first, second, *("".join(f"{cell:>12s}" for cell in cells) for cells in rows)]) + "\n"


TIMES = ("100.00", "90.00", "110.00")
MEBI = ("262144", "1048576", *TIMES)


def ucc(text: str, ranks: int | None = 4) -> BenchmarkResult:
    return read("ucc_perftest", text, ranks=ranks)


def test_an_allreduce() -> None:
    found = ucc(settings("Allreduce") + table((*MEBI, "15.73", "17.48", "14.30")))
    (only,) = found.rows
    assert (found.tool, found.memory, found.warnings) == ("ucc_perftest", "cuda", ())
    assert (only.operation, only.point, only.ranks, only.iterations, only.wrong) == (
        *("allreduce", MessagePoint(1 << 20, "float32"), 4),
        *(1000, None),
    )
    assert values(only) == {
        "latency": pytest.approx(1e-4),
        "latency_min": pytest.approx(9e-5),
        "latency_max": pytest.approx(1.1e-4),
        "busbw": 15.73,
    }
    shown = {item.metric: item.value for item in measurements(found)}
    assert shown["busbw"] == pytest.approx(15.72864)


def test_what_1_3_calls_bandwidth_is_the_bus_bandwidth() -> None:
    text = settings("Allreduce", late=False) + table((*MEBI, "15.73", "17.48", "14.30"), title="Bandwidth, GB/s")
    assert values(ucc(text).rows[0])["busbw"] == 15.73


def test_without_f_there_are_times_only() -> None:
    found = ucc(settings("Bcast") + table(MEBI, full=False))
    assert (found.operations, set(found.rows[0].figures)) == (
        ("broadcast",),
        {"latency", "latency_min", "latency_max"},
    )


@pytest.mark.parametrize("collective", ["Allgather", "Gather", "Allgatherv"])
def test_a_block_s_size_becomes_the_whole(collective: str) -> None:
    assert ucc(settings(collective) + table(MEBI, full=False)).rows[0].point.size == 4 << 20


@pytest.mark.parametrize(
    ("collective", "busbw", "size"),
    [
        ("Alltoall", "7.86", 1 << 20),  # 1.5 and later print the whole: 1 MiB x 3/4 / 100 us
        ("Alltoall", "31.46", 4 << 20),  # up to 1.4 a block
        ("Reduce_scatter", "7.86", 1 << 20),
        ("Scatter", "N/A", None),  # whose bandwidth is of the slowest rank only
    ],
)
def test_what_size_means_is_told_by_the_bandwidth(collective: str, busbw: str, size: int | None) -> None:
    found = ucc(settings(collective, late=False) + table((*MEBI, busbw, "N/A", "1.00")))
    assert [one.point.size for one in found.rows] == ([size] if size else [])


def test_a_late_release_needs_no_bandwidth_to_tell() -> None:
    assert ucc(settings("Alltoall") + table(MEBI, full=False)).rows[0].point.size == 1 << 20


def test_else_it_is_not_guessed() -> None:
    found = ucc(settings("Alltoall", late=False) + table(MEBI, full=False))
    assert found.rows == ()
    assert found.warnings[0].startswith("whether alltoall's size is a block or the whole depends on the release")
    unknown = ucc(settings("Allgather") + table(MEBI, full=False), ranks=None)
    assert unknown.warnings[0].startswith("how many ranks took part must be known to compute allgather's size")


def test_in_place() -> None:
    text = settings("Allreduce", inplace="1") + table((*MEBI, "15.73", "17.48", "14.30"))
    assert ucc(text).rows[0].point == MessagePoint(1 << 20, "float32", "in")


def test_a_barrier_has_neither_count_nor_size() -> None:
    text = settings("Barrier", inplace="N/A") + table(("N/A", "N/A", *TIMES, "N/A", "N/A", "N/A"))
    (only,) = ucc(text).rows
    assert (only.operation, only.point, set(only.figures)) == (
        *("barrier", MessagePoint(0, "none")),
        {"latency", "latency_min", "latency_max"},
    )


def test_one_rank_moves_nothing() -> None:
    found = ucc(settings("Allreduce") + table((*MEBI, "0.00", "0.00", "0.00")), ranks=1)
    assert found.warnings == ("1 rank: nothing moved, no figure is a bandwidth",)
    assert {item.metric for item in measurements(found)} == {"latency", "latency_min", "latency_max"}


def test_memory_is_of_the_basis_of_a_comparison() -> None:
    host, cuda = (ucc(settings("Allreduce", memory=kind) + table(MEBI, full=False)) for kind in ("host", "cuda"))
    assert host.comparison_key(host.rows[0]) != cuda.comparison_key(cuda.rows[0])
    assert host.comparison_key(host.rows[0]) == host.comparison_key(host.rows[0])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (settings("Allreduce") + table(), "a table's header, and no row that can be read"),
        (settings("Allreduce") + table(MEBI), "a row of 5 columns below a header of 8"),
        (settings("Allreduce") + table((*MEBI[:3], "90.00123456789.00"), full=False), "a row that cannot be read"),
        (settings("Allreduce") + table(("1", "4", "nan", *TIMES[1:]), full=False), "latency is not finite"),
        (settings("Allreduce") + table(("1", "4", "-1.0", *TIMES[1:]), full=False), "latency is negative"),
        (settings("Allreduce") + table(("1", "4.5", *TIMES), full=False), "the size is '4.5', no whole number"),
        ("  Count  Size  Time, ms\n  1  4  1.0  1.0  1.0\n", "unlike any header: 'Count  Size  Time, ms'"),
        (table(MEBI, full=False).replace("max", "p99"), "unlike any header: 'avg min p99'"),
        ("  1  4  1.0  1.0  1.0\n", "rows without a header above them (line 1)"),
        ("Benchmark failed with status -3 Operation is not supported", "no table: the program measured nothing"),
    ],
)
def test_what_is_wrong_is_said(text: str, complaint: str) -> None:
    found = ucc(text)
    assert any(said.startswith(complaint) for said in found.warnings), found.warnings
    assert all("latency" not in one.figures for one in found.rows)
