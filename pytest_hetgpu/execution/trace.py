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
from pytest_hetgpu.store.redaction.redact import redact

_LONGEST = 256 << 20


def save_trace(folder: RunFolder, label: str) -> None:
    """Write the trace in a cell's log to `trace.json`; nothing if it is not whole. Its text is redacted."""
    path = folder.trace(label)
    path.unlink(missing_ok=True)
    with suppress(OSError), folder.log(label).open("rb") as log:
        text = trace_of(line.rstrip(b"\n") for line in log)
        if text:
            write_atomically(path, redact(text).encode(), PRIVATE)


def trace_of(lines: Iterable[bytes]) -> str:
    """Return the trace that is reported in these lines of a log: JSON in Chrome's trace format; "" without a whole one.

    Source: "Trace Event Format" of the Chromium project: an object whose `traceEvents` are a list.
    """
    frames, parts, wanted = FrameReader(), dict[int, str](), 0
    for line in lines:
        for payload in frames.feed(line):
            if b'"t":"trace"' in payload:
                with suppress(ValueError, KeyError, TypeError):
                    record = json.loads(payload)
                    wanted = int(record["parts"])
                    parts[int(record["part"])] = str(record["data"])
    if not wanted or len(parts) != wanted or set(parts) != set(range(wanted)):
        return ""
    try:
        unpacked = zlib.decompressobj()
        data = unpacked.decompress(base64.b64decode("".join(parts[number] for number in range(wanted))), _LONGEST)
        text = data.decode()
        found = json.loads(text)
    except (ValueError, zlib.error, RecursionError):
        return ""
    whole = unpacked.eof and isinstance(found, dict) and isinstance(found.get("traceEvents"), list)
    return text if whole else ""
