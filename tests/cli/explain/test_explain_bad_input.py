"""Logs of any kind: an answer or a clear message, never a traceback."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_hetgpu.analysis.explain import explain
from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.analysis.logs.parse import log_parsers
from pytest_hetgpu.cli.main import main
from pytest_hetgpu.config.known_failures.load import known_failures

LOGS = sorted((Path(__file__).parents[2] / "data" / "logs").glob("*.log"))
WORDS = sorted({trigger.decode() for parser in log_parsers() for trigger in parser.triggers})
PIECES = st.one_of(
    st.sampled_from(WORDS), st.text(max_size=30), st.sampled_from(["[n1:7 :0:7] ", "0x7f", "\n", "\t", "()", "[0x1]"])
)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["explain", "--json", *arguments]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"\0" * 5000,
        bytes(range(256)) * 100,
        b"\xff\xfe\x00[n1:1] Signal: Segmentation fault (11)",
        'Traceback (most recent call last):\r\n  File "a.py", line 1, in x\r\nValueError: \udcff\r\n'.encode(
            "utf-8", "surrogateescape"
        ),
        'Traceback (most recent call last):\n  File "a.py", line 1\nMemoryError: nö\n'.encode("latin-1"),
        b"\x1b[31m[n1:00741] PML ucx cannot be selected\x1b[0m\n",
        b"x" * 3_000_000,
        b"[n1:1] *** Process received signal ***\n" * 5000,
        b"[n1:1:0:1] Caught signal 11 (Segmentation fault: x at address 0x1)\n==== backtrace (tid: 1) ====\n" * 2000,
    ],
    ids=[
        "empty",
        "blank",
        "nuls",
        "binary",
        "utf-16",
        "crlf",
        "latin-1",
        "ansi",
        "one-line",
        "unfinished",
        "unfinished-ucx",
    ],
)
def test_there_is_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(data)
    found = answer(capsys, str(log))
    assert found["outcome"]
    assert found["failed"] == []


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_a_log_may_end_anywhere(tmp_path: Path, log: Path) -> None:
    data = log.read_bytes()
    cut = tmp_path / "cut.log"
    for part in range(1, 8):
        cut.write_bytes(data[: len(data) * part // 8])
        assert not explain(cut, known_failures()).failed


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(PIECES, max_size=6).map("".join), max_size=25))
def test_no_dialect_fails_whatever_the_lines_hold(lines: list[str]) -> None:
    for parser in log_parsers():
        for number, line in enumerate("\n".join(lines).split("\n"), 1):
            parser.feed(parse_line(line, number))
        for reading in parser.finish():
            assert reading.signature.key
            assert not set(reading.signature.key) & set("*?[]\n ")
        parser.exits()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_no_dialect_fails_on_a_real_log_that_was_shuffled(data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from(LOGS)).read_text(errors="replace").split("\n")[:120]
    shuffled = data.draw(st.permutations(lines))
    for parser in log_parsers():
        for number, line in enumerate(shuffled, 1):
            parser.feed(parse_line(line[: data.draw(st.integers(0, 300))] if number % 7 == 0 else line, number))
        parser.finish()
        parser.exits()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (".", "is a directory without a log"),
        ("none.log", "cannot be read: No such file or directory"),
        ("a\0b", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explain", name]) == 4
    error = capsys.readouterr().err
    assert error.startswith(f"ERROR: {name}: ".replace("\0", ""))
    assert told in error
    assert "Traceback" not in error


def test_the_others_are_read_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "good.log"
    good.write_text("rank 0: done\n")
    assert main(["explain", "--json", "none.log", str(good), str(good)]) == 4
    shown = capsys.readouterr()
    assert [json.loads(line)["outcome"] for line in shown.out.splitlines()] == ["passed", "passed"]
    assert "none.log" in shown.err


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = io.TextIOWrapper(io.BytesIO(b"[n1:00741] PML ucx cannot be selected\n"))
    monkeypatch.setattr(sys, "stdin", text)
    assert answer(capsys)["key"] == "no-component@pml"


def test_a_bad_file_of_known_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("- id: x\n")
    assert main(["explain", "--knowledge", str(bad), "a.log"]) == 4
    assert f"ERROR: {bad}:1: x lacks the key 'title'" in capsys.readouterr().err
