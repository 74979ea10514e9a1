"""All that programs print, line by line, whatever it is."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.logs.output import OutputLines, without_labels
from pytest_hetgpu.analysis.logs.parse import DEBUG_NOISE
from pytest_hetgpu.analysis.logs.scan import LONGEST_LINE


def framed(**payload: object) -> bytes:
    text = json.dumps(payload, separators=(",", ":")).encode()
    return b"@hetgpu:%04d:%08x:%b" % (len(text), zlib.crc32(text), text)


def lines(tmp_path: Path, log: bytes, noise: tuple[bytes, ...] = ()) -> list[tuple[str, int]]:
    path = tmp_path / "output.log"
    path.write_bytes(log)
    return [(line.text, line.number) for line in OutputLines(path, noise).lines() if line.text is not None]


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (b"", []),
        (b"a\nb", [("a", 1), ("b", 2)]),
        (b"a\r\n\nc\n", [("a", 1), ("", 2), ("c", 3)]),
        (b"10 %\r50 %\rdone\n", [("done", 1)]),
        (b"\x1b[31mred\x1b[0m \0nul \xff\n", [("red nul \ufffd", 1)]),
        # Some columns are made of blanks before the first figure.
        (b"   8   1.5   Pass\n", [("   8   1.5   Pass", 1)]),
    ],
)
def test_lines_as_a_terminal_would_show_them(tmp_path: Path, log: bytes, told: list[tuple[str, int]]) -> None:
    assert lines(tmp_path, log) == told


def test_an_endless_line_comes_in_pieces(tmp_path: Path) -> None:
    pieces = lines(tmp_path, b"x" * (2 * LONGEST_LINE + 5) + b"\nnext\n")
    assert [(len(text), number) for text, number in pieces] == [(LONGEST_LINE, 1), (LONGEST_LINE, 1), (5, 1), (4, 2)]


def test_records_are_no_lines_and_debug_output_is_nobodys(tmp_path: Path) -> None:
    log = b"one\n" + framed(t="hello", rank=0) + b"\n[1] [vm:1:0] x.c:1 UCX  DEBUG  @ 8 1.5\ntwo\n"
    assert lines(tmp_path, log, DEBUG_NOISE) == [("one", 1), ("two", 4)]
    assert [number for _, number in lines(tmp_path, log)] == [1, 3, 4]


def test_what_ranks_started(tmp_path: Path) -> None:
    good = framed(t="program", rank=1, host="n", name="osu_bw", path="/x", looked=["/a"], versions={"osu": "7"})
    bad = [
        framed(t="program", rank="1"),
        framed(t="program", rank=True, path="/y"),
        framed(t="program", rank=2, host=3, looked="no", versions=[1]),
        b"@hetgpu:0003:00000000:{}}",
    ]
    path = tmp_path / "output.log"
    path.write_bytes(b"\n".join([good, *bad, framed(t="program", rank=1, path="/later")]))
    output = OutputLines(path)
    assert list(output.lines()) == []
    assert {rank: (start.name, start.host, start.path, start.looked) for rank, start in output.starts.items()} == {
        1: ("osu_bw", "n", "/x", ("/a",)),
        2: ("", "", "", ()),
    }
    assert output.starts[1].versions == {"osu": "7"}


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        list(OutputLines(tmp_path / "none").lines())


@pytest.mark.parametrize(
    ("labels", "log", "told"),
    [
        ("open-mpi-4", b"[1,0]<stdout>:a\n[1,1]<stdout>: b\nlauncher\n", [(0, "a"), (1, " b"), (None, "launcher")]),
        ("open-mpi-5", b"[1,0]<stdout>: a\n[prterun-h-1@1,12]<stderr>: b\n", [(0, "a"), (12, "b")]),
        # A launcher forwards chunks: lines of other ranks come in between.
        (
            "open-mpi-4",
            b"[1,0]<stdout>:first [1,1]<stdout>:whole\n[1,1]<stderr>:x[1,0]<stdout>:second\n",
            [(1, "whole"), (0, "first second"), (1, "x")],
        ),
        ("srun", b"0: a\n12: b: 3: c\nsrun: error: x\n", [(0, "a"), (12, "b: 3: c"), (None, "srun: error: x")]),
        # A message of srun's that ends within a line.
        ("srun", b"0: %b\n1: b\n0: c\n" % (b"a" * 1024), [(1, "b"), (0, "a" * 1024 + "c")]),
        ("torchrun", b"[default3]:a\nW1127 agent\n", [(3, "a"), (None, "W1127 agent")]),
        ("", b"[1,0]<stdout>: a\n", [(None, "[1,0]<stdout>: a")]),
    ],
)
def test_lines_of_ranks(tmp_path: Path, labels: str, log: bytes, told: list[tuple[int | None, str]]) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(log)
    assert [(line.rank, line.text) for line in OutputLines(path, labels=labels).lines()] == told


def test_a_record_that_a_label_divides_is_read(tmp_path: Path) -> None:
    record = framed(t="program", rank=1, path="/x")
    path = tmp_path / "output.log"
    path.write_bytes(b"[1,1]<stdout>:" + record[:30] + b"[1,0]<stdout>:a\n[1,1]<stdout>:" + record[30:] + b"\n")
    output = OutputLines(path, labels="open-mpi-4")
    assert [(line.rank, line.text) for line in output.lines()] == [(0, "a")]
    assert output.starts[1].path == "/x"


def test_a_line_that_is_too_long_is_told(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"a\n" + b"x" * 300 + b"\nb\n")
    output = OutputLines(path, longest=100)
    assert "".join(line.text or "" for line in output.lines()) == "a" + "x" * 300 + "b"
    assert output.divided == 2


@pytest.mark.parametrize(
    ("labels", "text", "bare"),
    [
        ("open-mpi-5", "[1,0]<stdout>:   on-host:  all connections are tcp", "  on-host:  all connections are tcp"),
        ("open-mpi-4", "[1,0]<stdout>:half[1,1]<stderr>: two", "half two"),
        ("srun", " 3: 4: x", "4: x"),
        ("torchrun", "[default1]:[rank1]: x", "[rank1]: x"),
    ],
)
def test_what_a_reader_of_proofs_gets(labels: str, text: str, bare: str) -> None:
    assert without_labels(text, labels) == bare
