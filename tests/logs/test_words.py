"""Many words at once, with RE2 and without."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_hetgpu.logs import words as module
from pytest_hetgpu.logs.words import Words

SOME = st.lists(st.binary(min_size=1, max_size=4), max_size=8)
TEXT = st.one_of(st.binary(max_size=60), st.text("ab", max_size=40).map(str.encode))


@pytest.fixture(params=["re2", "re"])
def engine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, lacking: Callable[[str, str], None]
) -> Iterator[None]:
    """With RE2, and where it is not installed."""
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
    assert Words(words).within(b" ".join(words)) == set(words)
    assert Words(words).within(b"abc x b Eb end qr") == set()


@pytest.mark.usefixtures("engine")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.one_of(SOME, st.lists(st.text("ab", min_size=1, max_size=4).map(str.encode), max_size=8)), TEXT)
def test_just_the_words_that_are_there(words: list[bytes], text: bytes) -> None:
    found = Words(words)
    there = {word for word in words if word in text}
    assert found.within(text) == there
    first = min((text.index(word) for word in there), default=None)
    assert found.first(text) == first
