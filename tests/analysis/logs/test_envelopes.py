"""Envelopes of a log's lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.logs.envelopes import find_envelope
from pytest_hetgpu.analysis.logs.lines import parse_line


def unpacked(lines: list[str]) -> list[bytes] | None:
    raw = [line.encode() + b"\n" for line in lines]
    envelope = find_envelope([line.rstrip(b"\n") for line in raw])
    return list(envelope.unpack(raw)) if envelope else None


def test_lines_inside_a_message_keep_the_number_of_the_record() -> None:
    lines = [json.dumps({"time": f"08:11:2{number}", "x": f"a\nb {number}\r\n  c d\n"}) for number in range(4)]
    found = unpacked(lines)
    assert found is not None
    assert [line.count(b"\n") for line in found] == [1] * 4
    parts = found[1].decode().rstrip("\n").split("\r")
    assert [parse_line(part, 2).text for part in parts] == ["a", "b 1", "  c d"]
    assert parse_line(parts[0], 2).time == "08:11:21"


def test_host_and_rank_are_facts_and_no_part_of_the_quote() -> None:
    records = [{"kubernetes": {"host": f"n{n % 2}"}, "rank": n % 2, "log": f"[n1:7] words {n}\n"} for n in range(6)]
    found = unpacked([json.dumps(record) for record in records])
    assert found is not None
    line = parse_line(found[3], 4)
    assert (line.host, line.rank, line.text, line.quote) == ("n1", 1, "[n1:7] words 3", "[n1:7] words 3")


def test_a_line_that_is_no_record_stays() -> None:
    lines = [json.dumps({"msg": f"some words {number}"}) for number in range(40)]
    assert (unpacked([*lines, '{"msg": "cut of']) or [])[-1] == b'{"msg": "cut of\n'


def test_a_message_of_bytes() -> None:
    lines = [json.dumps({"MESSAGE": list(b"\x1b[1mbold words")}), json.dumps({"MESSAGE": "other words"})]
    assert (unpacked(lines) or [])[0] == b"\x1b[1mbold words\n"


def test_a_csv_export_keeps_numbers_of_lines() -> None:
    text = 'Date,Message,Host\n08:11:27,"two\nlines, ""quoted""",n1\n08:11:28,"one line",n2\n'
    lines = text.removesuffix("\n").split("\n")
    found = b"".join(unpacked(lines) or []).decode().split("\n")
    assert [parse_line(line, 1).text for line in found] == ["", "two", 'lines, "quoted"', "one line", ""]
    assert [parse_line(line, 1).host for line in found] == [None, "n1", "n1", "n2", None]


def test_a_quote_that_is_never_closed_costs_no_line() -> None:
    rows = [f'08:11:27,n1,"words of row {number}"' for number in range(40)]
    found = b"".join(unpacked(["Date,Host,Message", *rows, '08:11:28,n1,"open', "more words"]) or [])
    assert found.count(b"\n") == 43
    assert b"more words" in found


@pytest.mark.parametrize(
    "lines",
    [
        ["size,bandwidth,latency", "8,1.5,2.5", "16,3.0,2.6", "32,6.0,2.7"],
        ["step 1", '{"loss": 2.0, "text": "some words"}', "step 2", "done"],
        ['{"step": 1, "loss": 2.5}', '{"step": 2, "loss": 2.25}'],
        ["a=1 b=2", "a=2 b=3"],
        ["one line"],
        ["10%\r20%,\r30%", "a\r,b", "c,d"],
    ],
)
def test_programs_own_records_are_no_envelopes(lines: list[str]) -> None:
    assert unpacked(lines) is None


@given(st.lists(st.binary(max_size=60).map(lambda line: line.replace(b"\n", b"")), max_size=12))
def test_any_bytes(lines: list[bytes]) -> None:
    envelope = find_envelope(lines)
    if envelope:
        raw = [line + b"\n" for line in lines]
        assert b"".join(envelope.unpack(raw)).count(b"\n") == len(raw)


@given(st.lists(st.text(max_size=40), min_size=2, max_size=12))
def test_any_message(texts: list[str]) -> None:
    found = unpacked([json.dumps({"log": text + "\n", "stream": "stdout"}) for text in texts])
    if found is not None:
        assert [line.count(b"\n") for line in found] == [1] * len(texts)
