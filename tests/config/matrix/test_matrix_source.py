"""YAML as 1.2 means it, with the line of everything, and within limits."""

from __future__ import annotations

import itertools
import os
import subprocess
import tracemalloc
from pathlib import Path

import pytest
import yaml

from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.config.matrix.source import Mapping, Scalar, SourceError, load, parse, plain


@pytest.fixture(params=["C", "Python"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML may have been built without libyaml."""
    if request.param == "C" and not hasattr(yaml, "CSafeLoader"):
        pytest.skip("this PyYAML has no libyaml")
    monkeypatch.setattr(source, "_Loader", yaml.CSafeLoader if request.param == "C" else yaml.SafeLoader)


def error(text: str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    "text",
    ["on", "off", "no", "yes", "6.10", "010", "0x10", "1_000", "1e3", "2024-01-01", "12:30:00", "true", ".inf", "="],
)
def test_a_scalar_is_its_source_text(text: str) -> None:
    assert plain(parse(f"a: {text}")) == {"a": text}


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_null_is_none_and_only_where_it_is_not_quoted(text: str) -> None:
    assert plain(parse(f"a: {text}\nb: '{text}'")) == {"a": None, "b": text}


def test_every_value_and_key_knows_its_line() -> None:
    tree = parse("# comment\na:\n  b: 1\n  c:\n    - x\n    - |\n      long\n      text\n    - {d: 2}\n")
    assert isinstance(tree, Mapping)
    a = tree.entries["a"]
    assert isinstance(a, Mapping)
    c = a.entries["c"]
    assert isinstance(c, source.Sequence)
    last = c.items[2]
    assert isinstance(last, Mapping)
    assert (tree.lines["a"], a.lines["b"], a.lines["c"]) == (2, 3, 4)
    assert [item.line for item in c.items] == [5, 6, 9]
    assert last.lines == {"d": 9}


def test_block_scalars_comments_and_a_byte_order_mark() -> None:
    assert plain(source.tree(b"\xef\xbb\xbfa: |\n  one # no comment\n  two\nb: >-\n  three\n  four\r\n")) == {
        "a": "one # no comment\ntwo\n",
        "b": "three four",
    }


def test_an_alias_is_the_anchored_value() -> None:
    tree = parse("a: &x [1, 2]\nb: *x\nc: {d: *x}\n")
    assert plain(tree) == {"a": ["1", "2"], "b": ["1", "2"], "c": {"d": ["1", "2"]}}


@pytest.mark.parametrize(
    ("merge", "expected"),
    [
        ("<<: *a", [("k", "a"), ("only", "a")]),
        ("<<: *a\n  k: own", [("k", "own"), ("only", "a")]),
        ("k: own\n  <<: *a", [("k", "own"), ("only", "a")]),
        ("z: 0\n  <<: *a\n  y: 0", [("z", "0"), ("k", "a"), ("only", "a"), ("y", "0")]),
        ("<<: [*a, *b]", [("k", "a"), ("only", "a"), ("more", "b")]),
        ("<<: [*b, *a]", [("k", "b"), ("more", "b"), ("only", "a")]),
        ("<<: {k: inline}", [("k", "inline")]),
        ("<<: {<<: *b, k: inline}", [("k", "inline"), ("more", "b")]),
    ],
)
def test_merging_keeps_own_keys_the_earlier_source_and_the_order_of_the_file(
    merge: str, expected: list[tuple[str, str]]
) -> None:
    tree = plain(parse(f"a: &a {{k: a, only: a}}\nb: &b {{k: b, more: b}}\nc:\n  {merge}\n"))
    assert list(tree["c"].items()) == expected


def test_a_merged_key_keeps_the_line_where_it_is_written() -> None:
    tree = parse("a: &a\n  k: 1\nb:\n  <<: *a\n")
    assert isinstance(tree, Mapping)
    b = tree.entries["b"]
    assert isinstance(b, Mapping)
    assert b.lines == {"k": 2}


def test_a_quoted_merge_key_is_an_ordinary_key() -> None:
    assert plain(parse('"<<": {a: 1}')) == {"<<": {"a": "1"}}


WRONG = {
    "duplicate key": ("a: 1\nb: 2\na: 3", 3, "key 'a' is there twice (first in line 1)"),
    "duplicate key in flow": ("{a: 1, a: 2}", 1, "key 'a' is there twice (first in line 1)"),
    "own key twice after a merge": (
        "a: &a {k: 1}\nb:\n  <<: *a\n  k: 2\n  k: 3",
        5,
        "key 'k' is there twice (first in line 4)",
    ),
    "two merges": (
        "a: &a {k: 1}\nb:\n  <<: *a\n  <<: *a",
        4,
        "key '<<' is there twice (first in line 3); merge a list: <<: [*a, *b]",
    ),
    "merge of a value": ("a:\n  <<: 3", 2, "<< merges a map or a list of maps"),
    "merge of a list of values": ("a:\n  <<: [{b: 1}, 3]", 2, "<< merges a map or a list of maps"),
    "tag": ("a: 1\nb: !!str c", 2, "explicit tag '!!str': types are not written here, leave it out"),
    "tag on a map": ("a: !mine {b: c}", 1, "explicit tag '!mine': types are not written here, leave it out"),
    "tag on a list": ("a: !!seq [b]", 1, "explicit tag '!!seq': types are not written here, leave it out"),
    "python tag": (
        "!!python/object/apply:os.system [id]",
        1,
        "explicit tag '!!python/object/apply:os.system': types are not written here, leave it out",
    ),
    "second document": ("a: 1\n---\nb: 2", 2, "a second document starts here; a file holds one"),
    "unknown alias": (
        "lab: &gpu-node {a: 1}\nb: *gpu-nod",
        2,
        "alias *gpu-nod has no anchor before it (known: gpu-node; did you mean 'gpu-node'?)",
    ),
    "alias cycle": ("a: &x [*x]", 1, "alias *x contains itself"),
    "alias cycle, deeper": ("a: &x\n  b:\n    - {c: *x}", 3, "alias *x contains itself"),
    "merge cycle": ("a: &x\n  <<: *x", 2, "alias *x contains itself"),
    "list as key": ("? [a, b]\n: c", 1, "a list or map cannot be a key"),
    "map as key": ("{{a: 1}: 2}", 1, "a list or map cannot be a key"),
    "alias of a list as key": ("a: &x [1]\n*x : 2", 2, "a key must be a word"),
    "null as key": ("a: 1\n~: 2", 2, "a key must be a word"),
    "deep brackets": ("[" * 5000, 1, "nested more than 32 levels deep"),
    "deep braces": ("{a: " * 5000, 1, "nested more than 32 levels deep"),
    "deep dashes": ("\n\n" + "- " * 5000, 3, "nested more than 32 levels deep"),
    "empty": ("", None, "is empty"),
    "only comments": ("# nothing\n\n# here\n", None, "is empty"),
    "NUL": ("a: 1\nb: \0", 2, "not a text file: character 0 is not allowed in YAML"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_and_where(case: str) -> None:
    text, line, words = WRONG[case]
    found = error(text)
    assert (found.line, str(found)) == (line, words)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: [b\nc: {", 2, "not YAML: while parsing a flow sequence that begins in line 1: "),
        ("a: 1\n b: 2\n", 2, "not YAML: "),
        ('a: 1\nb: "open\n\n', 4, "not YAML: while scanning a quoted scalar that begins in line 2: "),
        ("a:\n\tb: 1", 2, "a tab; indent with spaces"),
        ("a: @b", 1, "('@')"),
        ("a: {b: ${C}}", 1, "; inside brackets ${...} needs quotes"),
        ("a: 'b'c", 1, "not YAML: "),
        ("%YAML 3.0\n---\na: b", 1, "not YAML: "),
        ("a: *", 1, "not YAML: "),
        ("]", 1, "not YAML: "),
    ],
)
def test_malformed_text(text: str, line: int, words: str) -> None:
    found = error(text)
    assert found.line == line
    assert words in str(found)
    assert "not YAML: " in str(found)


def test_bytes_that_are_no_text() -> None:
    for data, line, words in (
        (b"a: 1\nb: caf\xe9\n", 2, "not a text file: byte 0xe9 is not UTF-8"),
        (b"\x7fELF\x02\x01\x00\xff", 1, "not a text file: byte 0xff is not UTF-8"),
        ("a: 1".encode("utf-16"), 1, "not a text file: byte 0xff is not UTF-8"),
    ):
        with pytest.raises(SourceError) as caught:
            source.tree(data)
        assert (caught.value.line, str(caught.value)) == (line, words)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_thirty_two_levels_are_enough_and_all_there_are() -> None:
    assert parse(nested(32))
    assert str(error(nested(33))) == "nested more than 32 levels deep"


def test_aliases_do_not_nest_deeper_than_that() -> None:
    # Each link is 20 levels deep as written and holds the one before: some 10,000 levels written out.
    chain = ["a0: &a0 [1]", *(f"a{i}: &a{i} {'[' * 20}*a{i - 1}{']' * 20}" for i in range(1, 500))]
    assert parse("\n".join(chain[:2]))
    found = error("\n".join(chain))
    assert (found.line, str(found)) == (3, "alias *a1 nests this more than 32 levels deep")


@pytest.mark.parametrize(
    "link",
    ["[*{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}]", "{{<<: *{0}, {1}: *{0}, {1}2: *{0}, {1}3: *{0}}}"],
)
def test_a_billion_laughs_stay_small(link: str) -> None:
    lines = ["a: &a {lol: [lol, lol, lol, lol, lol]}"]
    lines += [
        f"{name}: &{name} {link.format(before, name)}" for before, name in itertools.pairwise("abcdefghijklmnopq")
    ]
    tracemalloc.start()
    try:
        found = error("\n".join(lines))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(found) == "aliases write this out to more than 200,000 values"
    assert peak < 5_000_000


def file_error(path: Path) -> str:
    with pytest.raises(SourceError) as caught:
        load(path)
    assert caught.value.line is None
    return str(caught.value)


def test_a_file_of_50_mb_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(50_000_000)
    tracemalloc.start()
    try:
        assert file_error(path) == "is 50.0 MB; at most 1 MB can be read"
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_a_file_of_just_1_mb_is_read(tmp_path: Path) -> None:
    path = tmp_path / "full.yaml"
    path.write_bytes(b"a: b\n#" + b"x" * (source.MAX_BYTES - 6))
    assert plain(load(path)) == {"a": "b"}
    path.write_bytes(b"a: b\n#" + b"x" * (source.MAX_BYTES - 5))
    assert file_error(path) == "is 1.0 MB; at most 1 MB can be read"


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a: b")
    assert file_error(tmp_path) == "is a directory, not a file"
    assert file_error(tmp_path / "nothing") == "cannot be read: No such file or directory"
    assert file_error(tmp_path / "file" / "below") == "cannot be read: Not a directory"
    assert file_error(tmp_path / ("x" * 300)) == "cannot be read: File name too long"
    assert "null byte" in file_error(Path("a\0b"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "closed.yaml"
    path.write_text("a: b")
    path.chmod(0)
    assert file_error(path) == "cannot be read: Permission denied"


def test_a_pipe_of_the_shell_is_read_and_a_device_is_refused() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"a: b\n")
    os.close(writer)
    try:
        assert plain(load(Path(f"/dev/fd/{reader}"))) == {"a": "b"}
    finally:
        os.close(reader)
    assert file_error(Path("/dev/zero")) == "cannot be read: it is a device, not a file"


def test_a_pipe_of_the_shell_without_end_is_not_read_to_it() -> None:
    reader, writer = os.pipe()
    endless = subprocess.Popen(["cat", "/dev/zero"], stdout=writer)
    os.close(writer)
    try:
        assert file_error(Path(f"/dev/fd/{reader}")) == "holds more than the 1 MB that can be read"
    finally:
        os.close(reader)
        endless.wait()


def test_a_tree_may_be_one_value() -> None:
    assert isinstance(parse("word"), Scalar)
