"""Origin and content of log lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.logs.lines import parse_line

TRACE = "Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("whole", "rank", "host", "text"),
    [
        ("plain words", None, None, "plain words"),
        (" 3: [n1:7] Signal: 11", 3, None, "[n1:7] Signal: 11"),
        ("12: ", 12, None, ""),
        (
            "0:     8  /x/libucp.so.0(ucp_worker_progress+0x3a) [0x2a]",
            0,
            None,
            "    8  /x/libucp.so.0(ucp_worker_progress+0x3a) [0x2a]",
        ),
        ("[1,4]<stdout>:hello", 4, None, "hello"),
        ("[prterun-vm-17@1,4]<stderr>: hello", 4, None, "hello"),
        ("Fri Nov 20 20:11:27 2026[1,0]<stderr>:hello", 0, None, "hello"),
        ("[1,2][node1]<stderr>: hello", 2, None, "hello"),
        ("[0] hello", 0, None, "hello"),
        ("[rank1]: ValueError: no", 1, None, "ValueError: no"),
        ("[rank1]:[E1120 12:28:14.5 ProcessGroupGloo.cpp:3] x", 1, None, "[E1120 12:28:14.5 ProcessGroupGloo.cpp:3] x"),
        ("[default1]:[rank1]: ValueError: no", 1, None, "ValueError: no"),
        ('[default0]:  File "a.py"', None, None, ' File "a.py"'),
        ("node7: " + TRACE, None, "node7", TRACE),
        ("node1  | [rank0]: x", 0, "node1", "x"),
        ("[pod/job-worker-1/pytorch] hello", None, "job-worker-1", "hello"),
        ("(RayTrainWorker pid=12, ip=10.0.0.2) hello", None, "10.0.0.2", "hello"),
        ("2026-11-20T20:11:27.123456789Z stderr F hello", None, None, "hello"),
        ("2026-11-20T20:11:27.1234567Z 1: hello", 1, None, "hello"),
    ],
)
def test_what_a_launcher_put_before(whole: str, rank: int | None, host: str | None, text: str) -> None:
    line = parse_line(whole, 7)
    assert (line.rank, line.host, line.text, line.number, line.quote) == (rank, host, text, 7, whole.strip())


@pytest.mark.parametrize(
    "text",
    [
        "heat2d: app.c:16: check_state: Assertion `n < 100' failed.",
        "0.024s: job.exception type=alloc",
        "[11] miniFE.x(+0x10e45)[0x58a7f290de45]",
        "[node1:00511] [ 0] /lib/libc.so.6(+0x3c050)[0x7f09]",
        "error: it failed",
        "10.0.0.1: down",
        "OSError: [Errno 28] No space left on device: '/dev/shm/x'",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:525] Read error",
    ],
)
def test_what_is_no_prefix(text: str) -> None:
    assert parse_line(text, 1).text == text


def test_a_terminals_codes_are_no_text_but_stay_in_the_quote() -> None:
    line = parse_line(b"\x1b[31mERROR\x1b[0m: \x00no\r\n", 1)
    assert (line.text, line.whole) == ("ERROR: no", "\x1b[31mERROR\x1b[0m: no")


def test_of_what_was_written_over_the_last_counts() -> None:
    assert parse_line(b" 10% done\r 90% done\n", 1).text == " 90% done"


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300)))
def test_any_bytes_are_a_line(raw: bytes | str) -> None:
    line = parse_line(raw, 1)
    assert "\x00" not in line.text
    assert "\x1b" not in line.text
    assert len(line.quote) <= 4096


@pytest.mark.parametrize(
    "whole", ["[rank{}]: x", "[1,{}]<stderr>: x", "[{}] x", "{}: x", "[n1@1,{}]<stdout>:x", "[default{}]: x"]
)
def test_a_number_without_end_is_no_rank(whole: str) -> None:
    assert parse_line(whole.format("9" * 6000), 1).rank is None


def test_what_a_terminal_obeys_is_no_text() -> None:
    assert parse_line("a\x9b31mb\x85c\x1b(Bd\x9f", 1).text == "abcd"
