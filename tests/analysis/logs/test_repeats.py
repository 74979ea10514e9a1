"""Repeated lines of a large log: which parts of it are read, and that the answer stays."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.logs import repeats as module
from pytest_hetgpu.analysis.logs.repeats import Repeats


def wanted(line: bytes) -> bool:
    return b"rror" in line or b"code" in line


def parts(block: bytes, filtered: Repeats | None = None, at: int = 0) -> list[bytes]:
    filtered = filtered or Repeats(wanted)
    return [block[start:end] for start, end in filtered.windows(block, at)]


def read_again(line: bytes, times: int = 50) -> Repeats:
    """Return a filter that has read a line so often that it is repeated."""
    filtered = Repeats(wanted)
    parts(line * times, filtered)
    return filtered


def test_the_first_lines_of_a_kind_are_read_and_others_are_not() -> None:
    log = b"".join(b"error at %d\n" % number for number in range(10_000, 20_000))
    (part,) = parts(log)
    assert part.startswith(b"error at 10000\n")
    assert 8 <= part.count(b"\n") <= 8 + 30
    assert parts(log, read_again(b"error at 10000\n")) == []


def test_a_line_that_no_parser_wants_is_not_read() -> None:
    assert parts(b"step 1\nstep 2\nresidual 3\n" * 100) == []


def test_lines_around_a_new_one_are_read_with_it() -> None:
    lines = [b"step %d\n" % number for number in range(100, 300)]
    lines[150] = b"error: new\n"
    assert parts(b"".join(lines)) == [b"".join(lines[120:181])]
    # At the first and last lines of a block there are fewer.
    assert parts(b"error: new\n" + b"".join(lines[:100])) == [b"error: new\n" + b"".join(lines[:30])]
    assert parts(b"".join(lines[:100]) + b"error: new") == [b"".join(lines[70:100]) + b"error: new"]


def test_a_new_line_is_read_after_many_repeated_ones() -> None:
    filtered = read_again(b"error at 10000\n")
    log = b"error at 12345\n" * 1000
    (part,) = parts(log + b"error: another\n", filtered)
    assert part == b"error at 12345\n" * 30 + b"error: another\n"


@pytest.mark.parametrize("line", [b"exit code: %d\n", b"error on rank %d\n", b"error: status=%d\n", b"Errorcode %d\n"])
def test_each_new_code_or_rank_is_read(line: bytes) -> None:
    filtered = read_again(line % 0)
    assert parts(line % 1, filtered) == [line % 1]
    assert parts(line % 1, filtered) == []
    assert parts(line % 2 + line % 1 + line % 3, filtered) == [line % 2, line % 3]


def test_codes_and_ranks_are_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NUMBERS", 20)
    filtered = read_again(b"error on rank 1000\n")
    read = b"".join(parts(b"".join(b"error on rank %d\n" % rank for rank in range(2000, 3000)), filtered))
    assert read.count(b"\n") == 19


def test_own_records_are_always_read() -> None:
    record = b'@hetgpu:0001:code:{"t":"row"}\n'
    assert b"".join(parts(record, read_again(record))) == record


def test_numbers_addresses_and_carriage_returns_make_no_new_line() -> None:
    filtered = read_again(b"error in 10 at 0x7f00aa\n")
    assert parts(b"error in 99 at 0x1234cd\r\n" * 10, filtered) == []
    assert parts(b"\rerror in 99 at 0x1234cd\rerror in 98 at 0x123456\n", filtered) == []


def test_nothing_before_the_offset_is_read() -> None:
    block = b"error: before\nstep\nerror: after\n"
    assert parts(block, at=14) == [b"step\nerror: after\n"]
    assert parts(block, at=len(block)) == []


def test_memory_is_bounded() -> None:
    filtered = Repeats(wanted)
    blocks = [b"".join(b"error %s\n" % (b"xyzw"[n % 4 :] * (n % 300 + b)) for n in range(5000)) for b in range(40)]
    tracemalloc.start()
    try:
        for block in blocks:
            parts(block, filtered)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 8 << 20


LINES = st.sampled_from(
    [
        b"error",
        b"error 1",
        b"step 2",
        b"step 3",
        b"exit code 4",
        b"exit code 5",
        b"x" * 50,
        b"",
        b"\xff\0",
        b"\x1b[1merror",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
BLOCKS = st.lists(st.tuples(LINES, ENDS).map(b"".join), max_size=120).map(b"".join)


@given(st.lists(BLOCKS, max_size=5))
def test_parts_are_whole_lines_in_order_and_hold_every_new_line(blocks: list[bytes]) -> None:
    filtered, known = Repeats(wanted), set[bytes]()
    for block in blocks:
        offsets = list(filtered.windows(block, 0))
        flat = [offset for pair in offsets for offset in pair]
        assert flat == sorted(flat)
        ends = {0, len(block), *(at + 1 for at, byte in enumerate(block) if byte in b"\r\n")}
        assert {*flat} <= ends
        at = 0
        for line in block.replace(b"\r", b"\n").split(b"\n"):
            if wanted(line) and line not in known:
                known.add(line)
                assert any(start <= at and at + len(line) <= end for start, end in offsets)
            at += len(line) + 1


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_no_bytes_raise_an_exception(blocks: list[bytes]) -> None:
    filtered = Repeats(lambda line: len(line) % 2 == 0)
    for block in blocks:
        for start, end in filtered.windows(block, 0):
            assert 0 <= start <= end <= len(block)
