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
from typing import Any, Callable, Dict, List, Tuple

import torch
from records import emit
from torch_world import ProcessGroup

STEPS = 5
PART = 3600  # characters of a record
MOST_PARTS = 1000
# Gloo's and NCCL's collectives as PyTorch names them, and NCCL's kernels on a GPU.
COLLECTIVE = re.compile(r"(?:gloo|nccl|mpi|ucc):|ncclDevKernel|ncclKernel")


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
    """Return the part of the steps' time in which a collective was under way, overlapped by computation or not."""
    steps = [span for span in map(span_of, events) if span and span[2] == "step"]
    total = sum(end - start for start, end, _ in steps)
    busy = merged([span[:2] for span in map(span_of, events) if span and COLLECTIVE.match(span[2])])
    inside = sum(max(0.0, min(end, stop) - max(start, began)) for start, end in busy for began, stop, _ in steps)
    return inside / total if total else 0.0


def span_of(event: Dict[str, Any]) -> Tuple[float, float, str]:
    """Return start, end (us) and name of a complete event; an empty one for any other."""
    if event.get("ph") != "X" or event.get("cat") == "gpu_user_annotation":
        return 0.0, 0.0, ""
    start = float(event["ts"])
    return start, start + float(event.get("dur", 0)), str(event["name"])


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
    if wanted > MOST_PARTS:
        parts = parts[:1]  # incomplete, as the report will show
    for number, part in enumerate(parts):
        emit(t="trace", part=number, parts=wanted, data=part)
