"""Patterns of users: RE2 searches them, and without it no pattern takes long."""

from __future__ import annotations

import sys
import time

import pytest

from pytest_hetgpu.extensions.signatures.engine.own_rules import bounded, nests


@pytest.mark.parametrize(
    ("pattern", "nested"),
    [
        ("(a+)+", True),
        ("(?:(a*)b){2,}", True),
        ("((?:a{3})b)*", True),
        (r"(?:\(+\))+", True),
        ("(a|b)+c+", False),
        (r"(\+)+", False),
        ("([*+])+", False),
        ("(a+)b+", False),
        ("(a+)?", False),
        (")*(", False),
    ],
)
def test_a_repeated_repetition(pattern: str, nested: bool) -> None:
    assert nests(pattern) is nested


def test_re2_takes_any_pattern_in_linear_time() -> None:
    began = time.monotonic()
    assert bounded("(a+)+$").search("a" * 4000 + "b") is None
    assert time.monotonic() - began < 1


def test_without_re2_a_repeated_repetition_is_refused_and_lines_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ValueError, match="needs google-re2"):
        bounded("(a+)+$")
    with pytest.raises(ValueError, match="no regular expression"):
        bounded("(a")
    found = bounded("(?P<what>a+)b").search("x aab")
    assert found is not None
    assert found.groupdict() == {"what": "aa"}
    assert bounded("b").search("a" * 500 + "b") is None
