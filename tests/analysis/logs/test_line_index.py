"""Places of lines in a log, and lines read by them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.logs import line_index as module
from pytest_hetgpu.analysis.logs import scan
from pytest_hetgpu.analysis.logs.line_index import LineIndex
from pytest_hetgpu.analysis.logs.scan import Scan
from pytest_hetgpu.analysis.logs.text_search import read_lines


def test_the_place_is_before_the_line_begins() -> None:
    index = LineIndex()
    for number, offset in ((1, 0), (10, 100), (10, 150), (30, 300)):
        index.add(number, offset)
    # The second place of line 10 may be inside it.
    assert [index.before(number) for number in (1, 10, 11, 30, 31)] == [(1, 0), (1, 0), (10, 150), (10, 150), (30, 300)]
    assert LineIndex().before(5) == (1, 0)


def test_a_full_index_keeps_fewer_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 4)
    index = LineIndex()
    for number in range(1, 101):
        index.add(number, number * 10)
    assert index.before(1) == (1, 0)
    number, offset = index.before(101)
    assert offset == number * 10
    assert 40 <= number <= 100


PIECES = st.sampled_from([b"one", b"two" * 20, b"\n", b"\n\n", b"\r", b"\r\n", b"\0"])


@given(st.lists(PIECES, max_size=60).map(b"".join), st.integers(1, 40), st.integers(1, 40), st.integers(0, 5))
def test_lines_are_the_same_with_an_index(data: bytes, chunk: int, first: int, more: int) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(scan, "CHUNK", chunk)
        patch.setattr(module, "_MOST", 3)
        path = Path(folder) / "a.log"
        path.write_bytes(data)
        reader = Scan([])
        reader.file(path)
        expected = read_lines(path, first, first + more)
        assert read_lines(path, first, first + more, line_index=reader.line_index) == expected


def test_a_line_far_from_the_start_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(1, 300_001)))
    reader = Scan([])
    reader.file(path)
    for number in (1, 2, 150_000, 300_000):
        (line,) = read_lines(path, number, number, line_index=reader.line_index)
        assert line.text == f"line {number}"
