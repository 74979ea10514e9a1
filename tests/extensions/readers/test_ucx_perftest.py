"""ucx_perftest: real output of 1.13, and composed output of other releases and options."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.readers.base import ParseRequest, measurements
from pytest_hetgpu.extensions.readers.ucx_perftest import UcxPerftestParser
from pytest_hetgpu.model.program_output import BenchmarkResult
from pytest_hetgpu.model.records import MessagePoint
from tests.extensions.readers.feeding import read, sample, values

LAT = "ucx_perftest node -t tag_lat -s 1024"
MIB = 1048576 / 1e9


def table(kind: str, *rows: str, first: str = "Stage", percentile: str = "50.0") -> str:
    """Compose a table by the format strings of `print_header` in src/tools/perf/perftest_run.c."""
    rule = f"+{'-' * 14}+{'-' * 14}+{'-' * 10}+{'-' * 9}+{'-' * 9}+{'-' * 10}+{'-' * 10}+{'-' * 11}+{'-' * 11}+"
    kinds = f"|              |              |       {kind:>8s} (usec)        |"
    names = f"|    {first:>5s}     | # iterations | {percentile:>4s}%ile | average | overall |  average |  overall |"
    return "\n".join(
        [
            rule,
            f"{kinds}   bandwidth (MB/s)  |  message rate (msg/s) |",
            rule,
            f"{names}  average  |  overall  |",
            rule,
            *rows,
        ]
    )


def row(iterations: str, *figures: str, start: str = "Final:    ") -> str:
    return f"{start}{iterations:>18s} " + " ".join(f"{figure:>10s}" for figure in figures)


GOOD = ("2.068", "9.000", "4.000", "100.00", "244.14", "111", "250000")


def test_a_latency() -> None:
    found = sample("ucx_perftest", "ucx_perftest-tag-lat-f", argv=LAT)
    (only,) = found.rows
    assert (only.operation, only.point, only.ranks, only.iterations, only.wrong) == (
        *("send_recv", MessagePoint(1024, "uint8"), 2),
        *(2000, None),
    )
    assert values(only) == {
        "latency_p50": pytest.approx(1.801e-6),
        "latency": pytest.approx(4.008e-6),
        "algbw": pytest.approx(243.67 * MIB),
        "message_rate": 249516,
    }
    assert found.warnings == ()


def test_megabytes_are_2_to_the_20() -> None:
    """Its own figures prove it: 1024 bytes in 4.008 us are 255.5 MB/s of 1e6, and it prints 243.67."""
    (only,) = sample("ucx_perftest", "ucx_perftest-tag-lat-f", argv=LAT).rows
    assert values(only)["algbw"] == pytest.approx(1024 / 4.008e-6 / 1e9, rel=1e-3)


def test_an_overhead_is_no_latency() -> None:
    (only,) = (sample("ucx_perftest", "ucx_perftest-tag-bw-f", argv="ucx_perftest -t tag_bw -s 65536")).rows
    assert only.seconds is None
    assert set(only.figures) == {"overhead_p50", "overhead", "bandwidth", "message_rate"}
    shown = {item.metric for item in measurements(BenchmarkResult(rows=(only,)))}
    assert not shown & {"latency", "algbw", "busbw"}


def test_of_the_stages_the_last_counts() -> None:
    found = sample("ucx_perftest", "ucx_perftest-tag-bw-stages", argv="ucx_perftest -t tag_bw -s 4096")
    (only,) = found.rows
    assert only.iterations == 300_000
    assert values(only)["bandwidth"] == pytest.approx(52.36 * MIB)
    assert found.warnings == ()


def test_a_test_that_did_not_end_measures_nothing() -> None:
    found = sample("ucx_perftest", "ucx_perftest-tag-lat-stopped", argv=LAT)
    assert found.rows == ()
    assert found.warnings[0] == "the test did not end: its rows are of its first seconds (line 9)"


@pytest.mark.parametrize(
    ("name", "argv", "point", "time"),
    [
        ("tag-lat-fv", "ucx_perftest -t tag_lat -s8 -f -v", MessagePoint(8, "uint8"), "latency"),
        ("tag-bw-v", "ucx_perftest -t tag_bw -s 65536 -v", MessagePoint(65536, "uint8"), "overhead"),
    ],
)
def test_csv(name: str, argv: str, point: MessagePoint, time: str) -> None:
    """Rows of stages are among them, with the thread's number and no comma."""
    found = sample("ucx_perftest", f"ucx_perftest-{name}", argv=argv)
    assert [(one.point, time in one.figures) for one in found.rows] == [(point, True)]
    assert found.warnings == ()


def test_the_server_tells_what_the_client_does_not() -> None:
    server = sample("ucx_perftest", "ucx_perftest-tag-bw-f-server")
    assert server.warnings == ("the server's output alone: the client prints the figures",)
    pairs = (
        ("Test:", "tag match latency"),
        ("Send memory:", "cuda"),
        ("Recv memory:", "host"),
        ("Message size:", "1024"),
    )
    box = "".join(f"| {name:<13s} {value:<60s}    |\n" for name, value in pairs)
    both = read("ucx_perftest", box + table("latency", row("1000", *GOOD)))
    assert (both.rows[0].point.size, both.memory, both.warnings) == (1024, "cuda to host", ())


@pytest.mark.parametrize("name", ["batch", "batch-f", "batch-v"])
def test_a_batch_prints_neither_kind_nor_size(name: str) -> None:
    """Its header has overhead above a latency test."""
    found = sample("ucx_perftest", f"ucx_perftest-{name}")
    assert found.rows == ()
    assert found.warnings[0].startswith("a batch: kind and message size of its tests are not printed")


def test_another_size_than_asked_for_is_seen() -> None:
    found = sample("ucx_perftest", "ucx_perftest-put-bw", argv="ucx_perftest -t ucp_put_bw -s 1024")
    assert found.operations == ("put",)
    assert found.warnings == ("the size is not 1024: time and bandwidth make it 4095 (line 6)",)


def test_thousands_may_have_separators() -> None:
    grouped = row("1,000,000", "2.068", "9.000", "4.000", "100.00", "244.14", "2,222,222", "250,000")
    (only,) = read("ucx_perftest", table("latency", grouped), argv=LAT).rows
    assert (only.iterations, values(only)["message_rate"]) == (1_000_000, 250_000)


def test_several_threads_print_four_figures() -> None:
    found = read("ucx_perftest", table("latency", row("1000", "4.000", "244.14", "250000")), argv=LAT)
    assert values(found.rows[0]) == {
        "latency": pytest.approx(4e-6),
        "algbw": pytest.approx(244.14 * MIB),
        "message_rate": 250_000,
    }


def test_what_x_adds_is_left_out() -> None:
    found = read("ucx_perftest", table("latency", row("1000", *GOOD) + "  rndv zcopy"), argv=LAT)
    assert (len(found.rows), found.warnings) == (1, ())


def test_another_percentile() -> None:
    found = read("ucx_perftest", table("latency", row("1000", *GOOD), percentile="99.9"), argv=LAT)
    assert "latency_p99.9" in found.rows[0].figures


def test_1_8_prints_no_word_before_its_last_row() -> None:
    head = "|              |       latency (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |\n"
    names = "| # iterations | typical | average | overall |  average |  overall |   average |   overall |\n"
    rows = row("500", *GOOD, start="") + "\n" + row("1000", *GOOD, start="")
    found = read("ucx_perftest", head + names + rows, argv=LAT)
    assert [(one.iterations, "latency_p50" in one.figures) for one in found.rows] == [(1000, True)]


@pytest.mark.parametrize(
    ("argv", "size"),
    [
        ("-t tag_lat -s 16,48,64", 128),
        ("-t tag_lat -s 64:16", 1024),
        ("-t tag_lat -s1024", 1024),
        ("-t tag_lat -s x", None),
        ("-t tag_lat", None),
    ],
)
def test_sizes_on_the_command_line(argv: str, size: int | None) -> None:
    found = read("ucx_perftest", table("latency", row("1000", *GOOD)), argv=argv)
    assert [one.point.size for one in found.rows] == ([size] if size else [])
    assert bool(size) is not any(said.startswith("the message size of") for said in found.warnings)


def test_the_only_size_that_is_owed_is_it() -> None:
    found = read("ucx_perftest", table("latency", row("1000", *GOOD)), points=[MessagePoint(1024, "int8")])
    assert found.missing([MessagePoint(1024, "int8")]) == ()


def test_unchecked_unless_it_validates() -> None:
    text = table("latency", row("1000", *GOOD))
    bad = "[1.0] [vm:1:0] ucp_tests.h:166  UCX  ERROR data validation failed at offset 3: expected 0x1\n"
    assert [one.wrong for one in read("ucx_perftest", text, argv=LAT).rows] == [None]
    assert [one.wrong for one in read("ucx_perftest", text, argv=f"{LAT} -V").rows] == [0]
    found = read("ucx_perftest", bad + text, argv=f"{LAT} -V")
    assert [one.wrong for one in found.rows] == [1]
    assert "data validation failed" in found.failed[0]


@pytest.mark.parametrize(
    ("test", "operation"),
    [
        *(("tag_lat", "send_recv"), ("stream_bw", "send_recv"), ("am_lat", "active_message")),
        *(("ucp_am_bw", "active_message"), ("ucp_get", "get"), ("put_lat", "put"), ("ucp_fadd", "fadd")),
    ],
)
def test_operations(test: str, operation: str) -> None:
    assert read("ucx_perftest", table("latency", row("1000", *GOOD)), argv=f"p -t {test} -s 1024").operations == (
        operation,
    )


def test_an_operation_that_was_asked_for_has_that_name() -> None:
    asked = ParseRequest(("p", "-s", "1024"), "ucx_perftest", operation="my_put")
    reader = UcxPerftestParser(asked)
    for number, line in enumerate(table("latency", row("1000", *GOOD)).splitlines(), 1):
        reader.feed(line, number)
    assert reader.finish().operations == ("my_put",)


def test_a_loop_is_one_rank() -> None:
    found = read("ucx_perftest", table("latency", row("1000", *GOOD)), argv=f"{LAT} -l")
    assert found.rows[0].ranks == 1
    assert {item.unit for item in measurements(found)} == {"us", "1/s"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (table("latency"), "a table's header, and no row that can be read"),
        (table("latency", row("1000", *GOOD[:4])), "a row of 5 figures, not of 8, or 4 of several threads (line 6)"),
        (table("latency", row("1000", "nan", *GOOD[1:])), "latency_p50 is not finite (line 6)"),
        (table("latency", row("1000", "2.0", "9.0", "-4.0", *GOOD[3:])), "latency is negative (line 6)"),
        ("client failed. connect() failed: Connection refused", "no table: the program measured nothing"),
    ],
)
def test_what_is_wrong_is_said(text: str, complaint: str) -> None:
    found = read("ucx_perftest", text, argv=LAT)
    assert any(said.startswith(complaint) for said in found.warnings), found.warnings
