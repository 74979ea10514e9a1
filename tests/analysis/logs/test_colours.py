"""Colours inside of lines: words are found all the same, and lines are quoted as they stand in the log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.explain import explain
from pytest_hetgpu.analysis.logs import passages as module
from pytest_hetgpu.analysis.logs import scan
from pytest_hetgpu.analysis.logs.colours import Coloured, without_colours
from pytest_hetgpu.analysis.logs.passages import passages
from pytest_hetgpu.analysis.logs.scan import Ear, Line, Scan
from pytest_hetgpu.config.known_failures.load import known_failures

LOGS = sorted((Path(__file__).parents[2] / "data" / "logs").glob("*.log"))
ON, OFF = b"\x1b[01;31m\x1b[K", b"\x1b[m\x1b[K"
WORDS = re.compile(rb"error|ERROR|UCX|NCCL|MPI_\w+|signal")


def coloured(data: bytes) -> bytes:
    """As `grep --color` shows a log."""
    return WORDS.sub(lambda found: ON + found[0] + OFF, data)


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_a_log_reads_the_same_in_colours(tmp_path: Path, log: Path) -> None:
    known = known_failures()
    shown = tmp_path / "coloured.log"
    shown.write_bytes(coloured(log.read_bytes()))
    plain, found = explain(log, known), explain(shown, known)
    assert (found.outcome, found.lines, found.versions) == (plain.outcome, plain.lines, plain.versions)
    assert [entry.id for entry in found.known] == [entry.id for entry in plain.known]
    if plain.signature and found.signature:
        assert (found.signature.key, found.signature.line) == (plain.signature.key, plain.signature.line)
        assert found.signature.primary_line in coloured(log.read_bytes()).decode(errors="replace")
    assert bool(found.signature) == bool(plain.signature)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 1000])
def test_chunks_are_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(scan, "CHUNK", chunk)
    monkeypatch.setattr(module, "CHUNK", chunk)
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n" + ON + b"nee" + OFF + b"dle 1\x1b(B\x1b[m\n\x1b[0mtwo\nneedle 2\n" + ON)
    lines: list[Line] = []
    reader = Scan([Ear((b"needle",), lines.append)])
    reader.file(path)
    assert [(line.number, line.raw) for line in lines] == [
        (2, ON + b"nee" + OFF + b"dle 1\x1b(B\x1b[m"),
        (4, b"needle 2"),
    ]
    assert [line.said.text for line in lines] == ["needle 1", "needle 2"]
    assert reader.tail == ("one", "needle 1", "two", "needle 2")
    assert passages(path, ["needle 2", "two", "needle 1"]) == {"needle 1": 2, "two": 3, "needle 2": 4}


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", ON, OFF, b"\x1b", b"\x1b[3", b"\x1b[0m"]), max_size=30))
def test_every_part_has_its_own_colours(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    block = Coloured(data)
    assert block.plain == without_colours(data)
    at, lines = 0, []
    for line in block.plain.split(b"\n"):
        lines.append(block.whole(at, at + len(line)))
        at += len(line) + 1
    assert b"\n".join(lines) == data
