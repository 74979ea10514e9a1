"""The trace of a profiler in the records of a log."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.logs.records import RecordReader
from pytest_hetgpu.execution.trace import save_trace, trace_of
from pytest_hetgpu.store.folder import RunFolder

TRACE = json.dumps({"traceEvents": [{"ph": "X", "name": f"step {n}", "ts": n, "dur": 1} for n in range(500)]})


def frames(trace: str, *, length: int = 300) -> Iterator[bytes]:
    text = base64.b64encode(zlib.compress(trace.encode())).decode()
    parts = [text[start : start + length] for start in range(0, len(text), length)]
    for number, part in enumerate(parts):
        yield frame({"t": "trace", "part": number, "parts": len(parts), "data": part})


def frame(record: Mapping[str, object]) -> bytes:
    return framed(json.dumps(record, separators=(",", ":")).encode())


def framed(payload: bytes) -> bytes:
    return b"@hetgpu:%04d:%08x:%b" % (len(payload), zlib.crc32(payload), payload)


def test_a_trace_in_parts_among_other_lines() -> None:
    lines = [line for part in frames(TRACE) for line in (part, b"NCCL INFO something")]
    assert len(lines) > 4
    assert trace_of(lines) == TRACE


def test_the_records_say_how_much_of_it_arrived() -> None:
    reader = RecordReader()
    first, _, *rest = frames(TRACE)
    for line in (first, *rest):
        reader.feed(line)
    assert reader.finish().trace == (len(rest) + 1, len(rest) + 2)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [*frames(TRACE)][1:],
        [*frames("[1, 2]")],
        [*frames('{"traceEvents": 1}')],
        [*frames(TRACE[:-1])],
        [frame({"t": "trace", "part": 0, "parts": 1, "data": "!"})],
        [frame({"t": "trace", "part": 0, "parts": 1, "data": "AAAA"})],
        [frame({"t": "trace", "part": 0, "parts": 10**9, "data": ""})],
        [frame({"t": "trace", "part": "x", "parts": 1})],
        [framed(b'{"t":"trace","part":1e999,"parts":2,"data":""}')],
        [framed(b'{"t":"trace","part":0,"parts":1,"data":' + b"[" * 3000)],
    ],
)
def test_without_a_whole_and_valid_one_there_is_none(lines: list[bytes]) -> None:
    assert trace_of(lines) == ""


def test_it_lies_beside_the_log_and_is_its_owners(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    folder.prepare("a-b-c").write_bytes(b"\n".join(frames(TRACE)))
    save_trace(folder, "a-b-c")
    path = folder.trace("a-b-c")
    assert json.loads(path.read_text()) == json.loads(TRACE)
    assert path.stat().st_mode & 0o777 == 0o600
    folder.prepare("a-b-c").write_bytes(b"")
    save_trace(folder, "a-b-c")
    assert not path.exists()


def test_secrets_are_removed_and_the_rest_stays_json(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    trace = {"traceEvents": [{"name": "step", "args": {"token": "s3cr3t-abcdefghijklmnop"}}]}
    folder.prepare("a-b-c").write_bytes(b"\n".join(frames(json.dumps(trace))))
    save_trace(folder, "a-b-c")
    text = folder.trace("a-b-c").read_text()
    assert "s3cr3t" not in text
    assert json.loads(text)["traceEvents"][0]["name"] == "step"
