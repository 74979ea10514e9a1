"""Many words at once, with RE2 and without."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_hetgpu.model import multi_pattern as module
from pytest_hetgpu.model.multi_pattern import MultiPatternMatcher

SOME = st.lists(st.binary(min_size=1, max_size=4), max_size=8)
TEXT = st.one_of(st.binary(max_size=60), st.text("ab", max_size=40).map(str.encode))


@pytest.fixture(params=["re2", "re"])
def engine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, lacking: Callable[[str, str], None]
) -> Iterator[None]:
    """Run with RE2, and as if it were not installed."""
    if request.param == "re":
        monkeypatch.setitem(sys.modules, "re2", None)
    elif importlib.util.find_spec("re2") is None:
        lacking("re2", "google-re2 is not installed")
    module._any_of.cache_clear()
    yield
    module._any_of.cache_clear()


@pytest.mark.usefixtures("engine")
def test_words_are_no_patterns() -> None:
    words = [rb"a.c", rb"(x|", rb"\Eb", b"\x00\xff", b"end\\", b"q\nr"]
    assert MultiPatternMatcher(words).find_all(b" ".join(words)) == set(words)
    assert MultiPatternMatcher(words).find_all(b"abc x b Eb end qr") == set()


@pytest.mark.usefixtures("engine")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.one_of(SOME, st.lists(st.text("ab", min_size=1, max_size=4).map(str.encode), max_size=8)), TEXT)
def test_just_the_words_that_are_there(words: list[bytes], text: bytes) -> None:
    found = MultiPatternMatcher(words)
    there = {word for word in words if word in text}
    assert found.find_all(text) == there
    first = min((text.index(word) for word in there), default=None)
    assert found.find_first(text) == first


NUMBERS = st.sampled_from(
    [b"x", b"x]", b"xa", b"xaf]", b"af]", b"f", b"fg", b"g", b"a]", b"1", b"f1", b"]", b"x1", b" 2"]
)
PIECES = st.sampled_from([b"0xaf", b"0xfa", b"0xa", b"0xf", b"0x", b"0x1", b"g", b"]", b" ", b"x", b"a", b"1", b"2"])
LINES = st.lists(st.lists(PIECES, max_size=3).map(b"".join), min_size=2, max_size=12)


@pytest.mark.usefixtures("engine")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@example([b"x]"], [], [b"0xaf]", b"0x]"], 9)
@example([], [b"fg"], [b"0xag", b"0xfg"], 9)
@given(st.lists(NUMBERS, max_size=8), st.lists(NUMBERS, max_size=2), LINES, st.integers(1, 9))
def test_lines_that_differ_in_numbers_are_told_apart(
    words: list[bytes], others: list[bytes], lines: list[bytes], room: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_SHAPES", room)
        patch.setattr(module, "_LONGEST_SHAPE", 7)
        found = MultiPatternMatcher(words, others)
        for line in [*lines, *lines]:
            assert found.find_all(line) == {word for word in words + others if word in line}
