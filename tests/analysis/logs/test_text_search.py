"""Line numbers of texts in a log."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.logs import text_search as module
from pytest_hetgpu.analysis.logs.colours import without_colours
from pytest_hetgpu.analysis.logs.text_search import find_texts


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.write_bytes(b"one two\nthree\x00four\r\nfive three\nsix")
    return path


def test_the_first_line_of_each_counts(log: Path) -> None:
    assert find_texts(log, ["three", "six", "one two", "seven"]) == {"one two": 1, "three": 2, "six": 4}


def test_texts_that_begin_alike_are_all_found(log: Path) -> None:
    assert find_texts(log, ["five", "five three", "five t"]) == {"five": 3, "five three": 3, "five t": 3}


def test_nothing_wanted_and_nothing_there(log: Path) -> None:
    assert find_texts(log, []) == {}
    assert find_texts(log, ["", "nothing"]) == {}
    assert find_texts(log.with_name("missing"), ["one"]) == {}


@pytest.mark.parametrize("chunk", [1, 3, 8, 1000])
def test_it_does_not_matter_where_blocks_end(log: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    monkeypatch.setattr(module, "_OVERLAP", 12)
    assert find_texts(log, ["two\nthree"[:3], "three", "ve three", "six"]) == {
        "two": 1,
        "three": 2,
        "ve three": 3,
        "six": 4,
    }


PIECES = st.sampled_from([b"one", b"two", b"three", b" ", b"\n", b"\r", b"\x1b[1m", b"\x1b[", b"\0"])
TEXTS = ("one", "two", "three", "one two", "on", "two\x00")


@given(st.lists(PIECES, max_size=60).map(b"".join), st.integers(1, 60))
def test_the_number_is_that_of_the_first_line_whatever_the_chunks(data: bytes, chunk: int) -> None:
    plain = without_colours(data)
    there = {text: plain.count(b"\n", 0, plain.index(text.encode())) + 1 for text in TEXTS if text.encode() in plain}
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(module, "CHUNK", chunk)
        patch.setattr(module, "_OVERLAP", 12)
        path = Path(folder) / "a.log"
        path.write_bytes(data)
        assert find_texts(path, TEXTS) == there
