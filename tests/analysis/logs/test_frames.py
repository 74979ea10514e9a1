from __future__ import annotations

import zlib

import pytest

from pytest_hetgpu.analysis.logs.frames import MOST_HEADS, WINDOW, FrameReader

PAYLOAD = b'{"t":"check","rank":3,"points":[[8,"float32",0],[1024,"float32",0]]}'
OTHER = b'{"t":"done","rank":7}'
DEBUG = b"[1795184931.264575] [host:8535 :0] ucp_worker.c:1912 UCX  INFO  cfg#1 tag(tcp/eth0) {x}"


def frame(payload: bytes) -> bytes:
    return b"@hetgpu:%04d:%08x:%b" % (len(payload), zlib.crc32(payload), payload)


def read(output: bytes) -> tuple[list[bytes], int]:
    reader = FrameReader()
    payloads = [payload for line in output.split(b"\n") for payload in reader.feed(line)]
    return payloads, reader.finish()


CUTS = range(1, len(frame(PAYLOAD)))


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(b"\n", id="newline"),
        pytest.param(DEBUG + b"\n", id="line"),
        pytest.param(DEBUG + b"\n" + DEBUG, id="line and a half"),
        pytest.param(b"no newline, then }", id="half a line"),
        pytest.param(frame(OTHER) + b"\n", id="whole frame"),
        pytest.param(b"\n" + frame(OTHER), id="frame without its newline"),
        pytest.param(b"\n" + frame(OTHER)[:30] + b"\n", id="head of a frame that never ends"),
        pytest.param((DEBUG + b"\n") * 1000, id="flood"),
    ],
)
def test_a_frame_cut_anywhere_is_found_whatever_came_between(between: bytes) -> None:
    for cut in CUTS:
        payloads, _ = read(DEBUG + frame(PAYLOAD)[:cut] + between + frame(PAYLOAD)[cut:] + b"\n" + DEBUG)
        assert payloads.count(PAYLOAD) == 1, cut


@pytest.mark.parametrize("between", [DEBUG + b"\n", frame(OTHER) + b"\n"], ids=["line", "frame"])
def test_a_frame_that_was_found_is_not_counted_as_lost(between: bytes) -> None:
    for cut in CUTS:
        _, corrupt = read(frame(PAYLOAD)[:cut] + between + frame(PAYLOAD)[cut:] + b"\n")
        assert corrupt == 0, cut


def test_two_frames_cut_by_one_another_are_both_found() -> None:
    for cut in CUTS:
        for other_cut in range(1, len(frame(OTHER))):
            output = frame(PAYLOAD)[:cut] + frame(OTHER)[:other_cut] + frame(PAYLOAD)[cut:] + b"\n"
            payloads, corrupt = read(output + frame(OTHER)[other_cut:] + b"\n")
            assert (sorted(payloads), corrupt) == (sorted([PAYLOAD, OTHER]), 0), (cut, other_cut)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(frame(PAYLOAD) + b"\r", id="carriage return"),
        pytest.param(b"\0\0" + frame(PAYLOAD) + b"\0", id="NUL"),
        pytest.param(b"\x1b[1;32m" + frame(PAYLOAD) + b"\x1b[0m", id="colours"),
        pytest.param(frame(PAYLOAD)[:40] + b"\x1b[K\0" + frame(PAYLOAD)[40:], id="controls inside"),
        pytest.param(b"[1,0]<stdout>: " + frame(PAYLOAD), id="tag"),
        pytest.param(frame(PAYLOAD)[:40] + b"[1,0]<stdout>:" + frame(PAYLOAD)[40:], id="tag inside"),
        pytest.param(b"\xff\xfe" + frame(PAYLOAD) + b" and more", id="text around"),
        pytest.param(b"@hetgpu:" + frame(PAYLOAD), id="a mark before the mark"),
        pytest.param(b"x" * 60_000 + frame(PAYLOAD) + b"x" * 5_000, id="inside a piece of a long line"),
    ],
)
def test_what_stands_around_a_frame_does_not_matter(line: bytes) -> None:
    assert read(line)[0] == [PAYLOAD]


def test_several_frames_may_share_a_line() -> None:
    assert read(frame(PAYLOAD) + frame(OTHER) + DEBUG + frame(PAYLOAD)) == ([PAYLOAD, OTHER, PAYLOAD], 0)


def test_a_tail_carries_its_tag_and_line_end() -> None:
    head, tail = frame(PAYLOAD)[:50], frame(PAYLOAD)[50:]
    assert read(b"[1,0]<stdout>: " + head + b"\r\n[1,1]<stderr>: noise\r\n[1,0]<stdout>: " + tail + b"\r\n") == (
        [PAYLOAD],
        0,
    )


@pytest.mark.parametrize("place", range(len(frame(PAYLOAD))))
def test_a_damaged_frame_is_never_believed(place: int) -> None:
    damaged = bytearray(frame(PAYLOAD))
    damaged[place] ^= 1
    payloads, corrupt = read(bytes(damaged))
    if place < len(b"@hetgpu:LLLL:"):  # the CRC before the payload proves it even so
        assert payloads in ([PAYLOAD], [])
    else:
        assert (payloads, corrupt) == ([], 1)


def test_a_payload_without_its_header_is_not_believed() -> None:
    assert read(PAYLOAD) == ([], 0)


def test_a_frame_cut_twice_is_lost_and_counted() -> None:
    whole = frame(PAYLOAD)
    assert read(whole[:30] + DEBUG + b"\n" + whole[30:50] + DEBUG + b"\n" + whole[50:] + b"\n") == ([], 1)


def test_a_head_is_given_up_after_the_window() -> None:
    reader = FrameReader()
    reader.feed(frame(PAYLOAD)[:50])
    for _ in range(WINDOW // len(DEBUG) + 1):
        reader.feed(DEBUG)
    assert reader.feed(frame(PAYLOAD)[50:]) == []
    assert reader.corrupt == 1


def test_the_newest_heads_are_kept() -> None:
    reader = FrameReader()
    for _ in range(MOST_HEADS):
        reader.feed(frame(OTHER)[:30])
    reader.feed(frame(PAYLOAD)[:50])
    assert reader.feed(frame(PAYLOAD)[50:]) == [PAYLOAD]
    assert reader.finish() == MOST_HEADS


def test_a_hostile_log_ends_the_search_but_not_the_reading() -> None:
    reader = FrameReader()
    heads = 3_000
    for _ in range(heads):
        assert reader.feed(b"@hetgpu:4000:00000000:" + b"x" * 4000 + b"}") == []
    assert reader.feed(frame(PAYLOAD)) == [PAYLOAD]
    assert reader.finish() == heads
