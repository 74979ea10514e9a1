"""The trace of a profiler that rank 0 reported, as a file beside the log."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from contextlib import suppress

from pytest_hetgpu.analysis.logs.frames import FrameReader
from pytest_hetgpu.store.files import PRIVATE, write_atomically
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.redaction.redact import redact_json

LONGEST = 16 << 20
"""Bytes of the longest trace; parsed, it takes some 30 times as much memory."""
_MOST_PARTS = 1000


def save_trace(folder: RunFolder, label: str) -> None:
    """Write the trace in a cell's log to `trace.json`; nothing if it is not whole. Its text is redacted."""
    path = folder.trace(label)
    path.unlink(missing_ok=True)
    with suppress(OSError), folder.log(label).open("rb") as log:
        text = trace_of(line.rstrip(b"\n") for line in log)
        if text:
            write_atomically(path, json.dumps(redact_json(json.loads(text))).encode(), PRIVATE)


def trace_of(lines: Iterable[bytes]) -> str:
    """Return the trace that is reported in these lines of a log: JSON in Chrome's trace format; "" without a whole one.

    Source: "Trace Event Format" of the Chromium project: an object whose `traceEvents` are a list.
    """
    frames, parts, wanted = FrameReader(), dict[int, str](), 0
    for line in lines:
        for payload in frames.feed(line):
            if b'"t":"trace"' in payload and (part := _part(payload)):
                number, wanted, data = part
                parts[number] = data
    if not wanted or len(parts) != wanted or set(parts) != set(range(wanted)):
        return ""
    try:
        unpacked = zlib.decompressobj()
        packed = base64.b64decode("".join(parts[number] for number in range(wanted)))
        text = unpacked.decompress(packed, LONGEST).decode()
    except (ValueError, zlib.error):
        return ""
    return text if unpacked.eof and _is_trace(text) else ""


def _part(payload: bytes) -> tuple[int, int, str] | None:
    """Return number, number of all, and text of a part; None for a record with anything else."""
    try:
        record = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    number, parts, data = (record.get(name) for name in ("part", "parts", "data"))
    if type(number) is int and type(parts) is int and isinstance(data, str) and 0 <= number < parts <= _MOST_PARTS:
        return number, parts, data
    return None


def _is_trace(text: str) -> bool:
    """Return whether a text is a JSON object whose `traceEvents` are a list."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("traceEvents"), list)
