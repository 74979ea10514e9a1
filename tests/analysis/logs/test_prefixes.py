"""Prefixes that are learned from a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.analysis.logs.prefixes import learn_prefix, prefix_of

TRACEBACK = ["step 1", "", "Traceback (most recent call last):", '  File "a.py", line 3, in main', "ValueError: no"]
CRASH = ["[n1:04057] *** Process received signal ***", "[n1:04057] Signal: Segmentation fault (11)"]


def texts(lines: list[str]) -> list[str]:
    learned = learn_prefix(lines)
    return [parse_line(line, 1, learned).text for line in lines]


@pytest.mark.parametrize(
    "prefix", ["2026-11-20 08:11:27,123 ", "Nov  2 08:11:27 node7 python[77]: ", "[   12.345678] "]
)
def test_indentation_and_a_librarys_own_prefix_stay(prefix: str) -> None:
    whole = [*TRACEBACK, *CRASH]
    assert texts([prefix + line for line in whole]) == whole


def test_lines_without_the_prefix_stay() -> None:
    lines = [f"2026-11-20 08:11:2{second} INFO:trainer: step {second}" for second in range(6)]
    assert texts([*lines, *TRACEBACK[2:]])[6:] == TRACEBACK[2:]


def test_a_line_with_the_time_alone_loses_only_that() -> None:
    lines = [f"Nov  2 08:11:2{second % 10} node7 train[77]: step {second}" for second in range(99)]
    assert texts([*lines, "Nov  2 08:11:31    --- indented ---"])[-1] == "   --- indented ---"


@pytest.mark.parametrize(
    "line",
    [
        "[1795185337.134988] [vm:23169:0]     ucp_context.c:2463 UCX  DEBUG {} register host memory on: mm",
        "[node1:04057] mca: base: components_open: found loaded component {}",
        "node1:4057:4101 [0] NCCL INFO Channel {} : 0[0] -> 1[1] via P2P",
        "E1120 08:11:27.123456 4057 runner.cc:12] attempt {} failed",
        "[E1120 08:11:27.123456 ProcessGroupNCCL.cpp:12] attempt {} failed",
        "srun: error: node{}: task 3: Exited with exit code 1",
        "libfabric:4057:1795185337::core:core:fi_getinfo_():1 <info> {}",
        "==4057== Invalid read of size {}",
        "{}  12.5  13.25",
        "ValueError: {} is no size",
        "Nov. {}",
        "hetgpu: not ready: node1: refused: [redacted]",
    ],
)
def test_content_is_no_prefix(line: str) -> None:
    lines = [line.format(number * 7) for number in range(40)]
    assert learn_prefix(lines) is None or texts(lines) == lines


def test_a_few_lines_of_a_library_among_times_stay() -> None:
    ucx = "[1795185337.134988] [n1:23169:0] ucp_context.c:2463 UCX  ERROR no memory"
    lines = [f"[1795185337.13498{number % 10}] step {number}" for number in range(99)]
    assert texts([*lines, ucx])[-1] == ucx


def test_facts_are_kept() -> None:
    lines = [
        f"Nov  2 08:11:27 node{number % 3} train[7{number}]: rank {number % 3} | x{number}" for number in range(30)
    ]
    line = parse_line(lines[4], 1, learn_prefix(lines))
    assert (line.host, line.time, line.whole) == ("node1", "Nov  2 08:11:27", lines[4])
    lines = [f"rank {number % 3} | {text}" for number, text in enumerate(TRACEBACK * 3)]
    assert parse_line(lines[4], 1, learn_prefix(lines)).rank == 1


def test_a_host_that_all_lines_have_is_none() -> None:
    lines = [f"gpu-node-7: {line}" for line in TRACEBACK * 3]
    assert {parse_line(line, 1, learn_prefix(lines)).host for line in lines[:2]} == {None}


def test_a_known_prefix_may_precede_the_learned_one(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"0: 08:11:27.123 | {line}\n" for line in TRACEBACK * 3))
    assert parse_line("0: 08:11:27.123 | " + TRACEBACK[3], 1, prefix_of(log)).text == TRACEBACK[3]


@pytest.mark.parametrize("line", ["node1 | ", "[\u00b2] words", "\u00b2: ", "\u0663\twords", "08:11:27 "])
def test_a_prefix_without_content_or_with_odd_digits(line: str) -> None:
    for lines in ([line], [line] * 9, [line, "", line]):
        assert len(texts(lines)) == len(lines)


def test_a_missing_log_has_no_prefix(tmp_path: Path) -> None:
    assert prefix_of(tmp_path / "none.log") is None


@given(st.lists(st.text(max_size=80), max_size=30))
def test_any_lines_are_a_sample(lines: list[str]) -> None:
    learned = learn_prefix(lines)
    for line in lines:
        assert parse_line(line, 1, learned).whole == parse_line(line, 1).whole
