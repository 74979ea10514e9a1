"""The plain form of YAML: read documents equal PyYAML's, and all others are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.config.known_failures import load
from pytest_hetgpu.model import plain_yaml
from pytest_hetgpu.model.plain_yaml import NotPlain

SHIPPED = sorted(load.SHIPPED.glob("*.yaml"))
# What decides the meaning of YAML, and what shipped files are made of.
PIECES = st.sampled_from(
    (
        *("- ", "  ", "    ", "\n", "\n  ", "\n    ", "\n- ", "\n\n", "a: ", "b:", "a.b-c: ", "x: y", "id: x\n  "),
        *(">-", ">-\n    text\n    more\n", ">-\n    text\n\n    # more\n", "|", ">", "?", "-", "---", "..."),
        *("'", '"', "''", "\\", "\\\\", '\\"', "[", "]", "{", "}", ", ", ",", ":", " #", "#", "# c", "&a", "*a", "!t"),
        *("x", "word", "--x", "~", "%", "@", "`", ".", "=", "<<", "1", "true", " ", "\t", "\u00e9", "http://x/y#z"),
    )
)


def as_pyyaml(text: str) -> Any:
    return yaml.load(text, Loader=yaml.BaseLoader)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_files_are_plain(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert plain_yaml.load(text) == as_pyyaml(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("- a\n- b: 1\n  c: true\n", ["a", {"b": "1", "c": "true"}]),
        ("# first\na:\n  - x\n\n  # between\n  - y\nb: z\n", {"a": ["x", "y"], "b": "z"}),
        ("a: >-\n  one\n  two\n\nb: x\n", {"a": "one two", "b": "x"}),
        ("a: >-\n    # no comment\n    two\n", {"a": "# no comment two"}),
        ("a: http://x/y#z, (and) 'more'", {"a": "http://x/y#z, (and) 'more'"}),
        ("a: --gpus all", {"a": "--gpus all"}),
        (r"""a: {b: [x y, "q\\w\"", 'it''s'], c: {d: 1}}""", {"a": {"b": ["x y", 'q\\w"', "it's"], "c": {"d": "1"}}}),
        ("""a: ["x: y", ': #']""", {"a": ["x: y", ": #"]}),
    ],
)
def test_the_plain_form(text: str, value: Any) -> None:
    assert plain_yaml.load(text) == value == as_pyyaml(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "text", "a:", "a: ~", "a: x # comment", "a: x: y", "a: x\n  goes on", "a: [x,\n  y]", "a: [x, ]"),
        *("a: |\n  x", "a: >\n  x", "a: >-\n  x\n\n  y", "a: >-\n  x\n    y", "a: >-\nb: x", "a: >-\n  x\n\n  # y"),
        *("a: &x y", "a: *x", "a: !!str x", "? a", "<<: x", "---\na: x", "- - a", "a: x\na: y", "a: {b: x, b: y}"),
        *("a: []", "a: {b:c}", "a: [b: c]", 'a: "\\n"', 'a: "x', "a: 'x' y", "a:\n- x", "- a\nb: c", "a: x\r\n"),
        *("a:\tx", "a: \u00e9"),
    ],
)
def test_all_else_is_refused(text: str) -> None:
    with pytest.raises(NotPlain):
        plain_yaml.load(text)


@given(st.lists(PIECES, max_size=14).map("".join))
def test_what_is_not_refused_means_the_same_to_pyyaml(text: str) -> None:
    try:
        found = plain_yaml.load(text)
    except NotPlain:
        return
    assert found == as_pyyaml(text)


def test_what_is_refused_is_read_by_pyyaml() -> None:
    assert load._loaded("- id: x # a comment\n  harmless: true\n") == [{"id": "x", "harmless": "true"}]
