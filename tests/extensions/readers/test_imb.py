"""Tables of the Intel MPI Benchmarks."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.readers.base import ParseRequest, measurements
from pytest_hetgpu.extensions.readers.imb import ImbParser, operation
from pytest_hetgpu.model.records import MessagePoint
from tests.extensions.readers.feeding import SAMPLES, read


def sample(name: str) -> str:
    return (SAMPLES / f"imb-{name}.log").read_text(encoding="utf-8")


def test_each_benchmark_is_an_operation_of_its_own() -> None:
    found = read("imb", sample("mpi1-2021"))
    assert (found.version, found.warnings) == ("2021.11", ())
    assert found.operations == ("send_recv", "sendrecv_chain", "allreduce", "allgather", "barrier", "biband")
    first, *_ = found.rows
    assert (first.point, first.ranks, first.iterations) == (MessagePoint(0, "uint8"), 2, 10)
    by = {(row.operation, row.point.size): row for row in found.rows}
    assert by["allreduce", 8].point.dtype == "float32"
    assert set(by["allreduce", 8].figures) == {"latency", "latency_min", "latency_max"}
    assert set(by["send_recv", 8].figures) == {"latency"}
    assert set(by["biband", 8].figures) == {"bidirectional_bandwidth", "message_rate"}
    assert by["barrier", 0].point == MessagePoint(0, "none")
    assert ("allgather", 16) in by  # two blocks of 8 bytes


def test_measurements_of_several_operations_do_not_mix() -> None:
    names = {one.name for one in measurements(read("imb", sample("mpi1-2021")))}
    assert {"send_recv_latency[8,uint8]", "allreduce_latency[8,float32]", "barrier_latency[0,none]"} <= names
    assert not any(name.startswith("latency[") for name in names)


def test_one_benchmark_keeps_the_plain_names() -> None:
    text = sample("mpi1-2021")
    start, end = text.index("# Benchmarking Allreduce"), text.index("# Benchmarking Allgather")
    found = measurements(read("imb", text[start:end]))
    assert {"busbw[8,float32]", "algbw[8,float32]", "latency[8,float32]"} <= {one.name for one in found}


def test_nonblocking_one_sided_and_point_to_point_parts() -> None:
    nbc = read("imb", sample("nbc-2021"))
    assert nbc.operations == ("ibroadcast", "ibroadcast_pure")
    assert set(nbc.rows[0].figures) == {"latency", "overall", "compute", "overlap"}
    rma = read("imb", sample("rma-2021"))
    assert rma.operations == ("unidir_put", "unidir_put_aggregate", "all_put_all")
    p2p = read("imb", sample("p2p-2021"))
    assert p2p.operations == ("send_recv", "birandom")
    assert set(p2p.rows[0].figures) == {"latency", "message_rate"}
    assert nbc.warnings == rma.warnings == p2p.warnings == ()


def test_several_numbers_of_processes_are_several_numbers() -> None:
    found = read("imb", sample("worlds-2021"))
    assert found.warnings == ()
    assert {row.ranks for row in found.rows} == {2, 4}
    names = {one.name for one in measurements(found)}
    assert {"latency_2_ranks[8,float32]", "latency_4_ranks[8,float32]"} <= names


def test_one_point_twice_names_both_lines() -> None:
    lines = sample("p2p-2021").splitlines()
    rows = [place for place, line in enumerate(lines, 1) if line.startswith("            8 ")]
    text = "\n".join(lines).replace("Birandom", "PingPong")
    (warning,) = read("imb", text).warnings
    assert warning.startswith("send_recv has two numbers for one point: latency at 8,uint8 in line ")
    assert f"in line {rows[0]} and again (line {rows[1]} and 1 more)" in warning


@pytest.mark.parametrize("said", ["time-out.; Time limit is over; use -time X", "out-of-mem.; needed X=    0.020 GB"])
def test_a_size_that_was_not_measured(said: str) -> None:
    lines = sample("p2p-2021").splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("           16 "))
    lines[place] = f"           16 {said}"
    (warning,) = read("imb", "\n".join(lines)).warnings
    assert warning.startswith("PingPong did not measure 16 bytes: ")


def test_a_table_that_is_missing_and_a_column_that_is_not_known() -> None:
    text = sample("mpi1-2021")
    cut = text[: text.index("# Benchmarking Barrier")]
    assert read("imb", cut).warnings == ("no table of Barrier, Biband, which it was to run",)
    assert "unknown column" in read("imb", text.replace("Msg/sec", "Msgs")).warnings[0]


def test_defects_are_wrong_results() -> None:
    text = (
        "# Benchmarking PingPong\n# #processes = 2\n#bytes #repetitions t[usec] Mbytes/sec defects\n8 10 1.0 8.0 0.5\n"
    )
    (row,) = read("imb", text).rows
    assert row.wrong == 1


def test_the_command_names_the_operation() -> None:
    assert ImbParser.measures(ParseRequest(("IMB-MPI1", "-npmin", "2", "Allreduce"))) == "2"
    assert ImbParser.measures(ParseRequest(("/opt/IMB-MPI1", "Allreduce", "-npmin", "2"))) == "allreduce"
    assert [operation(name) for name in ("Bcast", "Ibcast", "Reduce_scatter", "Sendrecv", "PingPing")] == [
        "broadcast",
        "ibroadcast",
        "reduce_scatter",
        "sendrecv_chain",
        "pingping",
    ]
