"""Python's tracebacks as they are written: side by side, in boxes, chained, without a head."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.model.failure import Signature

TRACEBACK = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 7, in main\n    step()\n'


def matches(text: str) -> list[FailureMatch]:
    reader = find("signatures", "python_errors", LogParser)()  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        reader.feed(parse_line(line, number))
    return list(reader.finish())


def parse_all(text: str) -> list[Signature]:
    return list(by_priority(matches(text)))


def of_rank(rank: int, text: str) -> str:
    return "\n".join(f"[rank{rank}]: {line}" for line in text.splitlines()) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        of_rank(1, TRACEBACK + "ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal " + TRACEBACK.replace("main", "load") + "ValueError: bad sample"),
        TRACEBACK + "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 1 terminated with the following error:\n" + TRACEBACK.replace("main", "load") + "ValueError: bad worker\n",
    ],
)  # fmt: skip
def test_what_a_wrapper_quotes_is_the_cause(text: str) -> None:
    assert parse_all(text)[0].key == "ValueError@train.py!load"


def test_of_a_group_the_first_member_is_the_cause() -> None:
    text = """  + Exception Group Traceback (most recent call last):
  |   File "/home/me/train.py", line 7, in main
  |     step()
  | ExceptionGroup: several (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: a
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/home/me/train.py", line 9, in load
    |     f()
    | TypeError: b
    +------------------------------------"""
    keys = ["ValueError@train.py!main", "TypeError@train.py!load", "ExceptionGroup@train.py!main"]
    assert [read.key for read in parse_all(text)] == keys
    assert [read.key for read in parse_all(of_rank(0, text))] == keys


def test_ranks_that_write_at_once_are_told_apart() -> None:
    zero = of_rank(0, TRACEBACK + "KeyError: 'x'").splitlines()
    one = of_rank(1, TRACEBACK.replace("main", "load") + "ValueError: y").splitlines()
    read = parse_all("\n".join(line for pair in zip(zero, one, strict=True) for line in pair))
    assert {(one.key, one.ranks) for one in read} == {
        ("KeyError@train.py!main", (0,)),
        ("ValueError@train.py!load", (1,)),
    }


def test_a_ranks_traceback_may_begin_behind_anothers_words() -> None:
    text = 'Traceback (most recent call last):\n  File "/home/me/a.py", line 1, in f\n   ' + of_rank(
        0, TRACEBACK + "KeyError: 'x'"
    )
    assert [(read.key, read.ranks) for read in parse_all(text + "      ^^^^\nValueError: boom")] == [
        ("KeyError@train.py!main", (0,)),
        ("ValueError@a.py!f", ()),
    ]


def test_what_others_write_after_an_exception_is_not_its_message() -> None:
    text = (
        TRACEBACK
        + "KeyError: 'x'\n[E1120 ProcessGroupNCCL.cpp:6] [Rank 1] Watchdog caught collective operation timeout: W"
    )
    assert parse_all(text)[0].key == "KeyError@train.py!main"


def test_a_message_of_several_lines_is_one_exception() -> None:
    text = of_rank(0, TRACEBACK + "ValueError: first\nRuntimeError: told inside the message\n  third")
    assert [read.key for read in parse_all(text)] == ["ValueError@train.py!main"]


def test_a_traceback_inside_a_table_may_be_indented() -> None:
    text = "  traceback : " + TRACEBACK.replace("\n", "\n  ") + "FileNotFoundError: [Errno 2] No such file"
    assert [read.key for read in parse_all(text)] == ["FileNotFoundError@train.py!main"]


def test_a_threads_exception_does_not_end_the_program() -> None:
    (read,) = matches("Exception in thread Thread-1 (pin):\n" + TRACEBACK + "ValueError: boom")
    assert not read.fatal
    assert matches(TRACEBACK + "ValueError: boom")[0].fatal


def test_a_traceback_in_a_box() -> None:
    box = """╭───────────────────── Traceback (most recent call last) ─────────────────────╮
│ /home/me/train.py:7 in main                                                 │
│                                                                             │
│   7     step()                                                              │
│ /home/me/train.py:3 in step                                                 │
╰─────────────────────────────────────────────────────────────────────────────╯
ValueError: boom"""
    assert [read.key for read in parse_all(box)] == ["ValueError@train.py!step"]


def test_a_source_with_a_mistake_has_no_head() -> None:
    (read,) = parse_all(
        "  File \"/home/me/train.py\", line 3\n    def f(\n         ^\nSyntaxError: '(' was never closed"
    )
    assert (read.kind.value, read.key) == ("error", "SyntaxError@train.py")
