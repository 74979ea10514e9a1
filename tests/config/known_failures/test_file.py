"""Files of known failures: the shipped ones, and errors in bad ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_hetgpu.config.known_failures.file import read
from pytest_hetgpu.config.known_failures.load import SHIPPED, known_failures
from pytest_hetgpu.errors import KnowledgeError
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.verdict import Kind

GOOD = """\
- id: ours
  title: what it is
  match: {signature: SIGSEGV@libx.so!f}
  cause: why it is
  fix: {text: do this, env: {UCX_TLS: tcp, N: 0}, mca: {pml: ucx}}
  links: [https://example.org/1, https://example.org/2]
  status: reported
  when: {ucx: "<1.18"}
  fixed_in: UCX 1.18
"""
CRASH = Signature(Kind.CRASH, "SIGSEGV@libx.so!f", "line", 1)


def test_an_entry_says_all_there_is_to_know(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(GOOD)
    (entry,) = read(path)
    known = entry.known
    assert (known.id, known.title, known.cause, known.fix) == ("ours", "what it is", "why it is", "do this")
    assert known.settings == {"env": {"UCX_TLS": "tcp", "N": "0"}, "mca": {"pml": "ucx"}}
    assert (known.url, known.status, known.fixed_in) == ("https://example.org/1", "reported", "UCX 1.18")
    assert entry.origin == f"{path}:1"


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("a(?=b)", "has (?=, which looks ahead: give the text that must follow as another pattern, or in `texts`"),
        ("a(?!b)", "has (?!, which looks ahead: give the text that is there instead"),
        ("(?<=a)b", "has (?<=, which looks behind: make the text before it part of the pattern"),
        ("(?<!a)b", "has (?<!, which looks behind: give the text that is there instead"),
        (r"(a)\1", r"has \1, which repeats what a group has found: write the text out"),
        ("(?P<a>b)(?P=a)", "has (?P=, which repeats what a group has found: write the text out"),
        (r"a\Z", r"has \Z, which is the end in Python alone: write $"),
        (
            "a{1,2000}",
            "is not in the syntax of RE2 (invalid repetition size: {1,2000}): https://github.com/google/re2/",
        ),
    ],
)
def test_a_pattern_that_nobody_can_search_for_in_time_is_refused(tmp_path: Path, pattern: str, told: str) -> None:
    pytest.importorskip("re2")
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace("signature: SIGSEGV@libx.so!f", f"pattern: '{pattern}'"))
    with pytest.raises(KnowledgeError, match=re.escape(f"{path}:3: ours.match.pattern: {pattern!r} {told}")):
        read(path)


def test_a_users_entries_come_beside_the_shipped_ones_and_replace_those_of_their_id(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(GOOD + GOOD.replace("ours", "ucx-no-large-bar"))
    found = known_failures((path,))
    assert found.by_id.keys() > known_failures().by_id.keys()
    assert found.by_id["ucx-no-large-bar"].known.title == "what it is"
    assert {known.id for known in found.known_causes(CRASH, {}, {})} == {"ours", "ucx-no-large-bar"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("- id: ours", "id: ours", "not YAML"),
        ("title:", "titel:", "unknown key 'titel' in ours (known: cause, fix, fixed_in, harmless, id, links, match,"),
        ("cause: why it is", "cause: ''", "ours.cause must not be empty"),
        (
            "status: reported",
            "status: sure",
            "ours.status: unknown value 'sure' (known: established, plausible, reported)",
        ),
        ("{signature: SIGSEGV@libx.so!f}", "{pattern: '('}", "ours.match.pattern: '(' is no regular expression"),
        ("{signature: SIGSEGV@libx.so!f}", "{outcome: crash}", "ours.match is empty"),
        ("{signature: SIGSEGV@libx.so!f}", "{signature: a, unless: crush}", "unknown outcome 'crush'"),
        ("{signature: SIGSEGV@libx.so!f}", "{signature: a, outcome: crush}", "unknown outcome 'crush'"),
        ("{signature: SIGSEGV@libx.so!f}", "{texts: [ab]}", "'ab' must be one line of 3 to 200 characters"),
        ('{ucx: "<1.18"}', "{ucx: <1.x}", "ours.when.ucx: '<1.x' is not a version range"),
        ("status: reported", "harmless: true", "ours is harmless: give the texts that mean nothing"),
        ("https://example.org/1", "example.org", "must be a link"),
    ],
)
def test_what_is_said_of_a_mistake(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(KnowledgeError) as caught:
        read(path)
    assert any(told in error for error in caught.value.errors), caught.value.errors
    assert all(re.match(rf"{re.escape(str(path))}:\d+: ", error) for error in caught.value.errors)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("a: b", "a file of known failures is a list of entries, not a map"),
        ("[1]", "each entry must be a map, not '1'"),
        (GOOD + GOOD, "ours is there twice (first in line 1)"),
    ],
)
def test_what_is_said_of_a_file_that_is_none(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(KnowledgeError, match=re.escape(told)):
        read(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KnowledgeError, match=r"none\.yaml: cannot be read: No such file or directory"):
        known_failures((tmp_path / "none.yaml",))


def test_every_shipped_entry_is_sound_and_named_once() -> None:
    files = sorted(SHIPPED.glob("*.yaml"))
    names = [entry.id for path in files for entry in read(path)]
    assert len(names) == len(set(names)) > 40


def test_every_shipped_entry_that_is_sure_says_where_it_is_settled() -> None:
    for entry in known_failures().by_id.values():
        assert entry.known.links or entry.harmless or entry.known.status != "established", entry.id


def test_shipped_entries_are_read_as_anybodys_are() -> None:
    for path in sorted(SHIPPED.glob("*.yaml")):
        assert [known_failures().by_id[entry.id] for entry in read(path)] == list(read(path))
