"""The pass over a log: line numbers, context, odd bytes, odd lines, and memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.logs import scan
from pytest_hetgpu.analysis.logs.scan import LONGEST_LINE, TAIL_LINES, Scan, ScannedLine, Subscription


def heard(path: Path, *triggers: bytes, context: int = 0) -> list[tuple[int, bytes]]:
    lines: list[ScannedLine] = []
    Scan([Subscription(triggers, lines.append, context)]).file(path)
    return [(line.number, line.raw) for line in lines]


def log(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "output.log"
    path.write_bytes(data)
    return path


def test_only_wanted_lines_with_their_numbers(tmp_path: Path) -> None:
    path = log(tmp_path, b"one\ntwo needle\nthree\nneedle four")
    assert heard(path, b"needle") == [(2, b"two needle"), (4, b"needle four")]


def test_context_is_fed_whatever_it_holds_and_begins_anew(tmp_path: Path) -> None:
    path = log(tmp_path, b"x\nneedle\n1\nneedle\n2\n3\n4\n")
    assert [raw for _, raw in heard(path, b"needle", context=2)] == [b"needle", b"1", b"needle", b"2", b"3"]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 1000])
def test_chunks_are_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(scan, "CHUNK", chunk)
    data = b"a\r\n\n\0needle 1\r\nflood\nprogress 1%\rprogress 2%\rneedle 2\nnext\n\nend"
    assert heard(log(tmp_path, data), b"needle", context=1) == [
        (3, b"\0needle 1"),
        (4, b"flood"),
        (5, b"needle 2"),
        (6, b"next"),
    ]


def test_numbers_stay_right_behind_a_flood(tmp_path: Path) -> None:
    path = log(tmp_path, b"step 1 of 2\n" * 300_000 + b"needle\n")
    assert heard(path, b"needle") == [(300_001, b"needle")]


def test_a_line_without_end_comes_in_pieces(tmp_path: Path) -> None:
    path = log(tmp_path, b"x" * (3 << 20) + b"needle\nneedle\n")
    (first, second) = heard(path, b"needle")
    assert first[0] == 1
    assert len(first[1]) <= LONGEST_LINE
    assert second == (2, b"needle")


def test_text_of_a_line() -> None:
    assert ScannedLine(b"\0caf\xc3\xa9 \xff\0", 1).text == "café \N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("data", [None, b""])
def test_nothing_to_read(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "output.log"
    if data is not None:
        path.write_bytes(data)
    reader = Scan([Subscription((b"x",), lambda _: None)])
    reader.file(path)
    assert reader.tail == ()


@pytest.mark.parametrize("count", [1, TAIL_LINES, TAIL_LINES + 5, 200_000])
def test_tail(tmp_path: Path, count: int) -> None:
    reader = Scan([])
    reader.file(log(tmp_path, b"".join(b"line %d\r\n" % i for i in range(count))))
    assert list(reader.tail) == [f"line {i}" for i in range(max(0, count - TAIL_LINES), count)]


def test_tail_shows_what_a_terminal_would(tmp_path: Path) -> None:
    reader = Scan([])
    reader.file(log(tmp_path, b"1%\r2%\r3%\nlast " + b"y" * 5000 + b"\n\0"))
    assert reader.tail[0] == "3%"
    assert len(reader.tail[1]) == scan.LONGEST_TAIL_LINE


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    path = log(tmp_path, b"needle in a line without end" * (64 << 15))
    tracemalloc.start()
    Scan([Subscription((b"nothing of the kind",), lambda _: None)]).file(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


WORDS = st.lists(
    st.binary(min_size=1, max_size=4).filter(lambda word: b"\n" not in word and b"\r" not in word), max_size=6
)


def split(data: bytes) -> list[tuple[int, bytes]]:
    """Every line that is not empty, with its number."""
    lines = data.split(b"\n")
    return [(number, piece) for number, line in enumerate(lines, 1) for piece in line.split(b"\r") if piece]


@given(
    st.lists(st.sampled_from([b"a", b"bb", b"needle", b"\r", b"\n", b"\r\n", b"x" * 20]), max_size=40).map(b"".join),
    st.integers(1, 80),
)
def test_lines_are_what_they_are_whatever_the_chunks(data: bytes, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(scan, "CHUNK", chunk)
        path = log(Path(folder), data)
        assert heard(path, b"needle") == [(number, raw) for number, raw in split(data) if b"needle" in raw]
        assert heard(path, b"a", b"b", b"e", b"x") == split(data)


@pytest.mark.parametrize("longest", [16, 64])
def test_only_endless_lines_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: int) -> None:
    monkeypatch.setattr(scan, "CHUNK", 100)
    monkeypatch.setattr(scan, "LONGEST_LINE", longest)
    data = b"".join(b"needle %d\n" % number for number in range(1, 60))
    assert heard(log(tmp_path, data), b"needle") == [(number, b"needle %d" % number) for number in range(1, 60)]
    pieces = heard(log(tmp_path, b"needle" * 50), b"needle")
    assert all(number == 1 and len(raw) <= longest for number, raw in pieces)


@pytest.mark.parametrize("end", [b"\n", b"\x1b[0m", b"\n\x1b[0m"])
def test_a_large_log_has_the_ends_and_the_lines_of_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    lines = (
        b"\x1b[31mneedle\x1b[0m %050d\n" % number if number % 7 else b"step %050d\n" % number
        for number in range(300_000)
    )
    path = log(tmp_path, b"".join(lines) + b"last" + end)
    monkeypatch.setattr(scan, "LEAST_SIZE", 1 << 20)
    assert path.stat().st_size > 2 << 20
    found: list[tuple[Scan, list[ScannedLine]]] = []
    for whole in (True, False):
        fed: list[ScannedLine] = []
        reader = Scan([Subscription((b"needle",), fed.append)], whole=whole)
        reader.file(path)
        found.append((reader, fed))
    (all_lines, every), (some_lines, some) = found
    assert (some_lines.lines, some_lines.head, some_lines.tail) == (all_lines.lines, all_lines.head, all_lines.tail)
    assert [line.raw for line in some[:8]] == [line.raw for line in every[:8]]
    assert some[-1] == every[-1]
    assert len(some) < len(every) / 10
    # Numbers of lines are right, whatever was left out.
    assert {(line.number, line.raw) for line in some} <= {(line.number, line.raw) for line in every}
