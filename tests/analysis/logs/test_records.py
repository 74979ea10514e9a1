from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_hetgpu.analysis.logs.records import RecordReader, Records
from pytest_hetgpu.model.records import Hello, MessagePoint, RankExit, Row

HELLO: dict[str, Any] = {
    "t": "hello",
    "rank": 1,
    "size": 2,
    "host": "vm",
    "pid": 123,
    "library": "Open MPI v5.0.11, package: Open MPI",
    "libmpi": "/x/lib/libmpi.so.40",
    "mpi4py": "4.1.2",
    "python": "3.11.7",
}
ROW: dict[str, Any] = {
    "t": "row",
    "op": "allreduce",
    "size": 8,
    "dtype": "float32",
    "ranks": 2,
    "iterations": 20,
    "seconds": 1.25e-05,
    "min": 1.2e-05,
    "max": 1.3e-05,
}
CHECK: dict[str, Any] = {"t": "check", "rank": 0, "points": [[8, "float32", 0], [16, "float32", 3]]}
WRONG: dict[str, Any] = {
    "t": "wrong",
    "rank": 1,
    "size": 8,
    "dtype": "float32",
    "index": 3,
    "expected": "1.0",
    "got": "2.0",
    "count": 3,
}
DONE: dict[str, Any] = {"t": "done", "rank": 1}
AT = 1764000000.125
EVERY = (HELLO, ROW, CHECK, WRONG, DONE)


def frame(payload: bytes) -> bytes:
    return b"@hetgpu:%04d:%08x:%b" % (len(payload), zlib.crc32(payload), payload)


def line(record: object) -> bytes:
    return frame(json.dumps(record, separators=(",", ":")).encode())


def read(*lines: bytes) -> Records:
    reader = RecordReader()
    for each in lines:
        reader.feed(each)
    return reader.finish()


def test_each_record_becomes_the_noun_it_is() -> None:
    assert read(*map(line, EVERY)) == Records(
        hellos={1: Hello(1, 2, "vm", 123, "Open MPI v5.0.11, package: Open MPI", "/x/lib/libmpi.so.40")},
        rows=(Row("allreduce", MessagePoint(8, "float32"), 2, 20, 1.25e-05),),
        checks={0: {MessagePoint(8, "float32"): 0, MessagePoint(16, "float32"): 3}},
        wrong=("rank 1: 3 wrong elements at 8 B float32, first at [3]: expected 1.0, got 2.0",),
        done=frozenset({1}),
        corrupt=0,
    )


def test_records_may_say_when_they_were_written() -> None:
    records = read(
        *(line({**record, "at": AT}) for record in (HELLO, ROW, DONE)), line({**ROW, "repeat": 1, "at": AT + 1})
    )
    assert records.hellos[1].at == AT
    assert records.ended == {1: AT}
    assert records.last_row == AT + 1
    assert records.corrupt == 0


def test_the_first_word_of_a_rank_on_its_time_counts() -> None:
    records = read(line({**DONE, "at": AT}), line({**DONE, "at": AT + 5}), line(ROW))
    assert (records.ended, records.last_row) == ({1: AT}, None)


def test_one_wrong_element_is_singular() -> None:
    assert read(line({**WRONG, "count": 1})).wrong == (
        "rank 1: 1 wrong element at 8 B float32, first at [3]: expected 1.0, got 2.0",
    )


def test_output_without_records_says_nothing() -> None:
    assert read(b"", b"hello", b'{"t":"done","rank":0}', b"\xff\0@hetgp") == Records()


def test_a_program_that_ended_with_0_is_done_and_others_are_bad_ends() -> None:
    ends: tuple[dict[str, Any], ...] = (
        {"code": 0, "at": 7.5},
        {"code": 3},
        {"signal": 11},
        {"signal": 15},
        {"signal": 9},
        {"code": 0},
    )
    found = read(*(line({"t": "exit", "rank": rank} | end) for rank, end in enumerate(ends)))
    assert (found.done, found.ended, found.corrupt) == (frozenset({0, 5}), {0: 7.5}, 0)
    # Rank 3 was stopped from outside: it is not done, and that is all.
    assert found.exits == (RankExit(1, code=3), RankExit(2, signal=11), RankExit(4, signal=9))


def test_repeated_records_count_once() -> None:
    assert read(*map(line, EVERY * 3)) == read(*map(line, EVERY))


def test_checks_of_a_rank_add_up_over_its_records() -> None:
    more = {"t": "check", "rank": 0, "points": [[32, "int32", 0]]}
    assert read(line(CHECK), line(more)).checks == {
        0: {MessagePoint(8, "float32"): 0, MessagePoint(16, "float32"): 3, MessagePoint(32, "int32"): 0}
    }


def test_a_later_clean_check_does_not_whitewash_a_bad_one() -> None:
    clean = {"t": "check", "rank": 0, "points": [[16, "float32", 0]]}
    assert read(line(CHECK), line(clean)).checks[0][MessagePoint(16, "float32")] == 3


def test_what_is_in_place_is_another_point() -> None:
    row, wrong = {**ROW, "place": "in"}, {**WRONG, "place": "in", "buffer": "sent"}
    check = {**CHECK, "points": [[8, "float32", 1], [8, "float32", 2, "in"]]}
    records = read(line(row), line(check), line(wrong))
    assert [row.point for row in records.rows] == [MessagePoint(8, "float32", "in")]
    assert records.checks == {0: {MessagePoint(8, "float32"): 1, MessagePoint(8, "float32", "in"): 2}}
    assert records.wrong == (
        "rank 1: 3 wrong elements at 8 B float32 in place, first at [3] of what it sent: expected 1.0, got 2.0",
    )
    assert [str(point) for point in records.checks[0]] == ["8,float32", "8,float32,in"]


def test_a_point_may_hold_no_data() -> None:
    records = read(
        line({**ROW, "op": "barrier", "size": 0, "dtype": "none"}), line({**CHECK, "points": [[0, "none", 0]]})
    )
    assert records.rows[0].point == MessagePoint(0, "none")
    assert records.checks == {0: {MessagePoint(0, "none"): 0}}


def test_rows_of_one_point_that_differ_are_all_kept() -> None:
    assert [row.seconds for row in read(line(ROW), line({**ROW, "seconds": 2})).rows] == [1.25e-05, 2.0]


def test_repeats_of_a_point_are_told_apart_even_if_they_took_as_long() -> None:
    records = read(*(line({**ROW, "repeat": repeat}) for repeat in (0, 1, 1)))
    assert [(row.repeat, row.seconds) for row in records.rows] == [(0, 1.25e-05), (1, 1.25e-05)]


def test_unknown_records_and_fields_are_passed_over() -> None:
    assert read(line({"t": "weather", "rank": "?"}), line({**DONE, "points": None, "x": [1]})) == Records(
        done=frozenset({1})
    )


@pytest.mark.parametrize(
    "record",
    [
        [],
        7,
        {},
        {"t": 1},
        {"t": ["done"]},
        {"t": "done"},
        {**DONE, "rank": True},
        {**DONE, "rank": 1.0},
        {**DONE, "rank": "1"},
        {**DONE, "rank": -1},
        {**DONE, "rank": 2**63},
        {**DONE, "rank": None},
        {"t": "exit", "rank": 1},
        {"t": "exit", "code": 0},
        {"t": "exit", "rank": 1, "code": -1},
        {"t": "exit", "rank": 1, "code": 256},
        {"t": "exit", "rank": 1, "signal": 0},
        {"t": "exit", "rank": 1, "signal": 65, "code": 0},
        {"t": "exit", "rank": 1, "signal": "SIGSEGV"},
        {**DONE, "at": "1764000000"},
        {**DONE, "at": True},
        {**DONE, "at": float("nan")},
        {**DONE, "at": float("inf")},
        {**DONE, "at": -1},
        {**DONE, "at": 1e300},
        {**DONE, "at": 10**400},
        {**HELLO, "at": [AT]},
        {**ROW, "at": {}},
        {**HELLO, "rank": 2},
        {**HELLO, "size": 0},
        {**HELLO, "host": 5},
        {**HELLO, "library": "bell \a"},
        {**HELLO, "libmpi": "\ud800"},
        {**ROW, "size": -8},
        {**ROW, "dtype": None},
        {**ROW, "op": "all\x1b[31mreduce"},
        {**ROW, "ranks": 0},
        {**ROW, "place": "out"},
        {**ROW, "place": 1},
        {**ROW, "iterations": 0},
        {**ROW, "repeat": -1},
        {**ROW, "repeat": "1"},
        {**ROW, "seconds": float("nan")},
        {**ROW, "seconds": float("inf")},
        {**ROW, "seconds": 0},
        {**ROW, "seconds": -1e-6},
        {**ROW, "seconds": True},
        {**ROW, "seconds": "1e-6"},
        {**ROW, "seconds": 10**3000},
        {**CHECK, "points": {}},
        {**CHECK, "points": [8, "float32", 0]},
        {**CHECK, "points": [[8, "float32"]]},
        {**CHECK, "points": [[8, "float32", 0], [16, "float32", -1]]},
        {**CHECK, "points": [[8, "float32", None]]},
        {**CHECK, "points": [[8, "float32", 0, "out"]]},
        {**CHECK, "points": [[8, "float32", 0, "in", 1]]},
        {**CHECK, "points": [[8, "float32", 0, ["in"]]]},
        {**WRONG, "count": 0},
        {**WRONG, "buffer": 1},
        {**WRONG, "index": -1},
        {**WRONG, "got": 2.0},
    ],
    ids=lambda record: json.dumps(record)[:60],
)
def test_what_no_record_may_say_is_counted_and_not_believed(record: object) -> None:
    assert read(line(record)) == Records(corrupt=1)


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"\xff" * 20, b"[" * 4000, b'{"t":"done","rank":1e999}', b'{"t":"row","seconds":-Infinity}'],
    ids=["empty", "half", "binary", "deep", "overflow", "infinity"],
)
def test_a_payload_that_is_no_json_is_counted(payload: bytes) -> None:
    assert read(frame(payload)) == Records(corrupt=1)


def test_a_log_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_hetgpu.analysis.logs.records.MOST_FACTS", 10)
    records = read(*(line({**WRONG, "index": index}) for index in range(50)))
    assert (len(records.wrong), records.corrupt) == (10, 40)


def sentence(record: dict[str, Any]) -> str:
    (only,) = read(line(record)).wrong
    return only


chunk_lengths = st.lists(st.one_of(st.integers(1, 80), st.integers(100, 600), st.integers(1, 4096)), min_size=1)
foreign = st.sampled_from([b"", b"\n", b"UCX DEBUG {half", b'[vm:1] line }\n{"t":"', b"@hetgpu:\n", b"\0\r\n}"])


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(data=st.data(), counts=st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_ranks_cut_and_mixed_lose_no_record_that_was_cut_once(data: st.DataObject, counts: list[int]) -> None:
    """Every rank's stream is forwarded in chunks of any length, in any order, with foreign text between them."""
    whole, once, queues = set(), set(), []
    for rank, count in enumerate(counts):
        records = [{**WRONG, "rank": rank, "index": index, "got": "9" * (index % 40)} for index in range(count)]
        stream = b"".join(line(record) + b"\n" for record in records)
        lengths = data.draw(chunk_lengths)
        cuts = boundaries(lengths, len(stream))
        queues.append([stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)])
        start = 0
        for record in records:
            end = start + len(line(record))
            whole.add(sentence(record))
            if sum(start < cut <= end for cut in cuts) <= 1:  # its newline is part of it
                once.add(sentence(record))
            start = end + 1
    output = b""
    while any(queues):
        queue = data.draw(st.sampled_from([queue for queue in queues if queue]))
        output += queue.pop(0) + data.draw(foreign)
    found = set(read(*output.split(b"\n")).wrong)
    assert once <= found <= whole


def boundaries(lengths: list[int], total: int) -> list[int]:
    cuts: list[int] = []
    place = 0
    while True:
        for length in lengths:
            place += length
            if place >= total:
                return cuts
            cuts.append(place)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
hostile_records = st.builds(
    lambda base, changes: {**base, **changes},
    st.sampled_from(EVERY),
    st.dictionaries(st.sampled_from(sorted({key for record in EVERY for key in record})), json_values),
)
hostile_lines = st.one_of(
    st.binary(),
    st.binary().map(frame),
    json_values.map(line),
    hostile_records.map(line),
    st.tuples(hostile_records.map(line), st.integers(0, 200)).map(lambda pair: pair[0][: pair[1]]),
    st.tuples(hostile_records.map(line), st.integers(0, 200)).map(lambda pair: pair[0][pair[1] :]),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(hostile_lines, max_size=20))
def test_no_bytes_raise(lines: list[bytes]) -> None:
    records = read(*lines)
    assert all(row.seconds > 0 and row.point.size >= 0 for row in records.rows)
    assert all(0 <= hello.rank < hello.size for hello in records.hellos.values())
    assert all(count >= 0 for points in records.checks.values() for count in points.values())
    assert all(text.isprintable() for text in records.wrong)
