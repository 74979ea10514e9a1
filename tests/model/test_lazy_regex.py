"""Patterns that wait until they are used."""

from __future__ import annotations

import re

import pytest

from pytest_hetgpu.model.lazy_regex import lazy


def test_it_does_what_a_compiled_pattern_does() -> None:
    words = lazy(r"(?P<first>a\w+)", re.IGNORECASE)
    assert [found["first"] for found in words.finditer("Alpha beta along")] == ["Alpha", "along"]
    assert words.sub("-", "an axe") == "- -"
    assert (words.pattern, words.groupindex) == (r"(?P<first>a\w+)", {"first": 1})
    assert lazy(rb"\xff+").search(b"a\xff\xff")


def test_it_is_compiled_at_its_first_use_and_no_earlier() -> None:
    wrong = lazy("(")
    with pytest.raises(re.error):
        wrong.search("text")
