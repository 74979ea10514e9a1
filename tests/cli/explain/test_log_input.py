"""Logs other than plain UTF-8 files: pipes, other encodings."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.cli.explain.encodings import detect_encoding
from pytest_hetgpu.cli.explain.log_input import open_logs
from pytest_hetgpu.cli.main import main

LOG = Path(__file__).parents[2] / "data" / "logs" / "openmpi5-ucx-guarded.log"
KNOWN = "- {id: our-own, title: ours, match: {signature: '*'}, cause: c}\n"


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["explain", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    del found["file"]
    return found


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-16", ""),
        ("utf-16-le", ""),
        ("utf-16-be", ""),
        ("utf-16-be", "\ufeff"),
        ("utf-32", ""),
    ],
)
def test_wide_characters_are_read_like_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str, mark: str
) -> None:
    log = tmp_path / "a.log"
    log.write_bytes((mark + LOG.read_text()).encode(encoding))
    found = answer(capsys, str(log))
    assert found["outcome"] == "crash"
    assert found == answer(capsys, str(LOG))


def test_wide_characters_cost_no_memory(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes("step 1 of 2\n".encode("utf-16-le") * 500_000)
    tracemalloc.start()
    for _, copy in open_logs(str(log)):
        assert isinstance(copy, Path)
        peak = tracemalloc.get_traced_memory()[1]
        assert copy.read_text() == "step 1 of 2\n" * 500_000
    tracemalloc.stop()
    assert peak < 8 << 20
    assert isinstance(copy, Path)
    assert not copy.exists()


@pytest.mark.parametrize("head", [b"", b"\n", b"a\0", b"\0" * 500, b"plain words", b"\x1b\0\0\0 odd words in a log"])
def test_narrow_characters(head: bytes) -> None:
    assert detect_encoding(head) is None


@contextmanager
def piped(data: bytes) -> Iterator[str]:
    """Return the path of a pipe as a shell opens it for `<(command)`; a thread writes `data` to it once."""
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(data)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield f"/dev/fd/{reader}"
    finally:
        thread.join(10)
        assert not thread.is_alive()
        os.close(reader)


def test_a_pipe_of_the_shell_is_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # More than a pipe holds, so that its writer waits for a reader.
    data = LOG.read_bytes() + b"step 1 of 2\n" * 50_000
    plain = tmp_path / "a.log"
    plain.write_bytes(data)
    with piped(data) as pipe:
        found = answer(capsys, pipe)
    assert found == answer(capsys, str(plain))


def test_known_failures_come_through_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with piped(KNOWN.encode()) as pipe:
        assert main(["explain", "--json", "--knowledge", pipe, str(LOG), str(LOG)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["our-own" in {entry["id"] for entry in json.loads(line)["known"]} for line in lines] == [True, True]


def test_what_is_no_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main(["explain", os.devnull, str(tmp_path / "pipe")]) == 4
    hint = "; `hetgpu explain - <PIPE` reads a pipe"
    assert capsys.readouterr().err.splitlines() == [
        "ERROR: /dev/null: cannot be read: it is a device, not a file",
        f"ERROR: {tmp_path}/pipe: cannot be read: it is a named pipe, not a file{hint}",
    ]


def test_standard_input_that_is_closed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["explain"]) == 4
    assert capsys.readouterr().err == "ERROR: standard input is closed: name a log\n"


class Terminal(io.TextIOWrapper):
    """Standard input from a keyboard."""

    def isatty(self) -> bool:
        return True


def test_who_types_is_told_how_to_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(b"rank 0: done\n")))
    assert main(["explain"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "reading standard input (end with Ctrl-D)\n"
    assert shown.out.startswith("standard input: passed")


class Interrupted(Terminal):
    """Standard input that ends with Ctrl-C."""

    @property
    def buffer(self) -> Any:
        raise KeyboardInterrupt


def test_who_gives_up_sees_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", Interrupted(io.BytesIO()))
    assert main(["explain"]) == 130
    assert "Traceback" not in capsys.readouterr().err
