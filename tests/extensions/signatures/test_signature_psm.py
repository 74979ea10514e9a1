"""Reports of PSM's signal handler, alone and mixed, and other reports of the same death."""

from __future__ import annotations

import pytest

from tests.extensions.signatures.parsing import matches, parse_all

HEAD = "{0}:{1} terminated with signal {2} at PC={3} SP=7ffc07143800.  Backtrace:"


def report(program: str, pid: int, signal: int, *frames: tuple[str, str], head: str = HEAD) -> list[str]:
    lines = [f"{name}[0x{address}]" for name, address in (*frames, (f"./{program}(_start+0x21)", f"{frames[-1][1]}f"))]
    return ["", head.format(program, pid, signal, frames[0][1]), *lines]


SOLVER = (
    ("./solve(step+0x292)", "5618a61a07e9"),
    ("./solve(main+0x17c)", "5618a61a0ff3"),
    ("/lib/libc.so.6(+0x2724a)", "7f8e7e96524a"),
)
SEND = (
    ("/lib/libc.so.6(+0x16d885)", "7fc1feb8b885"),
    ("/opt/libfabric.so.1(fi_x+0x8f)", "7fc1fe55013f"),
    ("/opt/libmpi.so.12(MPI_Send+0x1d5)", "7fc1fedff1d5"),
    ("./heat(main+0x191)", "559be7238e20"),
)


@pytest.mark.parametrize(
    "head",
    [
        HEAD,
        "{0}:pid{1} terminated with signal {2} at PC={3} SP=7ffc07143800. Backtrace:",
        "{0}:{1} terminated with signal {2}.  Backtrace:",
    ],
)
def test_each_generation_of_the_handler(head: str) -> None:
    (read,) = parse_all("\n".join(report("solve", 1074, 4, *SOLVER, head=head)), "psm")
    assert (read.key, read.signal, read.library, read.function) == ("SIGILL@solve!step", "SIGILL", "solve", "step")
    assert (read.primary_line, read.line) == (head.format("solve", 1074, 4, SOLVER[0][1]), 2)


def test_the_frame_at_fault_is_below_the_c_library_and_the_handler() -> None:
    handler = (("/opt/libpsm3-fi.so(+0x4c10)", "7fc1f0004c10"), ("/lib/libc.so.6(+0x3c050)", "7fc1fea5a050"))
    lines = report("heat", 7, 11, *SEND)
    lines[2:2] = [f"{name}[0x{address}]" for name, address in handler]
    (read,) = parse_all("\n".join(lines), "psm")
    assert (read.key, read.entry_point) == ("SIGSEGV@libfabric.so!fi_x", "MPI_Send")


def test_reports_written_at_the_same_time_are_told_apart() -> None:
    one, other = report("solve", 1, 4, *SOLVER), report("heat", 2, 11, *SEND)
    mixed = [line for pair in zip(one, other, strict=False) for line in pair] + other[len(one) :]
    assert {read.key for read in parse_all("\n".join(mixed), "psm")} == {
        "SIGILL@solve!step",
        "SIGSEGV@libfabric.so!fi_x",
    }


def test_ranks_before_lines_tell_reports_apart() -> None:
    text = "\n".join(f"[{rank}] {line}" for rank in (3, 5) for line in report("solve", rank, 11, *SOLVER))
    (read,) = parse_all(text, "psm")
    assert (read.key, read.ranks) == ("SIGSEGV@solve!step", (3, 5))


def test_an_abort_is_told_by_the_assertion_before_it() -> None:
    said = "solve: solve.c:9: step: Assertion `n > 0' failed."
    (read,) = parse_all("\n".join([said, *report("solve", 7, 6, *SOLVER)]), "glibc", "psm")
    assert (read.key, read.primary_line, read.detail) == ("SIGABRT@solve!step", said, "n > 0")


@pytest.mark.parametrize(
    "text",
    [
        "prterun: process 12 terminated with signal 9",
        ": terminated with signal 4 at PC=0 SP=0. Backtrace:",
        "a:7 terminated with signal 4 at PC=zz",
        "x" * 5000 + " terminated with signal ",
        "\0",
    ],
)
def test_other_words_are_nothing(text: str) -> None:
    assert matches("psm", f"{text}\n./a(b+0x1)[0x5]") == []
