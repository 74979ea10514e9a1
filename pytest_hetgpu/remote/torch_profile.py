"""A trace of some training steps as records, by the profiler of PyTorch (Kineto, with CUPTI or roctracer on a GPU).

Rank 0 is profiled. The trace is in the format of Chrome: JSON with a list of events, times in microseconds. It follows
the results, compressed by zlib and cut into records, because not every node has a disk that others can read.
"""

from __future__ import annotations

import base64
import json
import os
import re
import tempfile
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import torch
from records import emit
from torch_world import ProcessGroup

STEPS = 5
PART = 3600  # characters of a record
MOST_PARTS = 1000
LONGEST = 16 << 20  # bytes of a trace that the report takes
KERNEL = "kernel"
# Collectives as PyTorch names them on the host, and the kernels of NCCL and RCCL.
ON_HOST, ON_DEVICE = re.compile(r"(?:gloo|mpi|ucc):"), re.compile(r"nccl\w*Kernel")


def profile_steps(world: ProcessGroup, step: Callable[[], Any], fields: Dict[str, int]) -> None:
    """Run some steps on every rank, and report the trace of rank 0 and the share of communication in it.

    `fields` are those of the training's point.
    """
    world.synchronize()
    if world.rank:
        for _ in range(STEPS):
            step()
        world.synchronize()
        return
    activities = [torch.profiler.ProfilerActivity.CPU]
    if world.device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(STEPS):
            with torch.profiler.record_function("step"):
                step()
        world.synchronize()
    trace = exported(profiler)
    share = communication_share(json.loads(trace)["traceEvents"])
    told = {**fields, "dtype": "none", "ranks": world.ranks}
    emit(t="figure", metric="communication", value=share, unit="", **told)
    emit_trace(trace)


def communication_share(events: List[Dict[str, Any]]) -> float:
    """Return the part of the steps' time in which a collective was under way, overlapped by computation or not.

    Kernels may end after the host has left the last step: the time lasts until then.
    """
    spans = [span_of(event) for event in events if event.get("ph") == "X"]
    steps = [span for span in spans if span.name == "step"]
    if not steps:
        return 0.0
    kernels = [span for span in spans if span.category == KERNEL]
    first, last = min(one.start for one in steps), max(one.end for one in (*steps, *kernels))
    found = [one for one in kernels if ON_DEVICE.match(one.name)] or [one for one in spans if ON_HOST.match(one.name)]
    busy = merged([(one.start, one.end) for one in found])
    inside = sum(max(0.0, min(end, last) - max(start, first)) for start, end in busy)
    return inside / (last - first)


class Span(NamedTuple):
    """An event with a duration: start and end in microseconds."""

    start: float
    end: float
    name: str
    category: str


def span_of(event: Dict[str, Any]) -> Span:
    """Return the span of a complete event."""
    start = float(event["ts"])
    return Span(start, start + float(event.get("dur", 0)), str(event["name"]), str(event.get("cat", "")))


def merged(spans: List[Tuple[float, float]]) -> List[Tuple[float, float]]:
    """Merge spans that overlap."""
    found: List[Tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def exported(profiler: Any) -> bytes:
    """Return the trace as the profiler exports it."""
    handle, name = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    try:
        profiler.export_chrome_trace(name)
        return Path(name).read_bytes()
    finally:
        Path(name).unlink()


def emit_trace(trace: bytes) -> None:
    """Report a trace in parts."""
    text = base64.b64encode(zlib.compress(trace, 9)).decode("ascii")
    parts = [text[start : start + PART] for start in range(0, len(text), PART)]
    wanted = len(parts)
    if wanted > MOST_PARTS or len(trace) > LONGEST:
        parts = parts[:1]  # incomplete, as the report will show
    for number, part in enumerate(parts):
        emit(t="trace", part=number, parts=wanted, data=part)
