"""Facts of a cell that conditions of known failures name. The job determines most; the log adds what it leaves open."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from pytest_hetgpu.analysis.logs.log_facts import log_facts, separate
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.outcome import Evidence
from pytest_hetgpu.planning.rank_settings import rank_settings

_VENDORS = ("cuda", "rocm")
_PER_NODE = "{memory}"


def cell_facts(job: Job, evidence: Evidence, output: Path, wanted: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the facts of a cell, each with all its values; those of `wanted` that the job leaves open from its log.

    `memory` is host, guarded, device or managed, the latter two with the vendor (cuda, rocm). `platform` is that of
    each node, with `mixed` for GPUs of both vendors. A variable (`UCX_TLS`) has its value on each node, "" if unset.
    Raise OSError if the output cannot be read.
    """
    platforms = tuple(dict.fromkeys(node.hardware.accelerator.platform for node in job.nodes))
    mixed = ("mixed",) if {*_VENDORS} <= {*platforms} else ()
    found = {
        **separate({**job.demand.facts, **evidence.facts}),
        "platform": (*platforms, *mixed),
        "fabric": tuple(dict.fromkeys(node.hardware.fabric.kind for node in job.nodes)),
        "launcher": tuple(word.rpartition("/")[2] for word in job.command.argv[:1]),
        **dict(_variables(job, wanted)),
        **dict(_large_bar(job)),
    }
    if job.demand.external is None:
        found["program"] = ("torch",) if job.demand.backend else ()
    found.pop("memory", None)
    memory = _memory_of_job(job, evidence)
    if memory:
        found["memory"] = tuple(dict.fromkeys(_memory_values(memory, platforms)))
    open_ones = {*wanted} - found.keys()
    found |= log_facts(output, open_ones)
    if "memory" in open_ones and "memory" not in found and platforms == ("cpu",):
        found["memory"] = ("host",)
    return found


def _memory_of_job(job: Job, evidence: Evidence) -> str:
    """Return the memory of its buffers as the program or the matrix names it; "" for another program that does not."""
    named = {**job.demand.facts, **evidence.facts}.get("memory", "")
    return named or ("" if job.demand.external else "host")


def _memory_values(named: str, platforms: Collection[str]) -> Iterator[str]:
    """Yield the values of a memory: `device` and `cuda` for `DEVICE (D) to HOST (H)` on an NVIDIA node, and `host`."""
    gpus = [platform for platform in platforms if platform in _VENDORS]
    for word in named.replace(_PER_NODE, " to ".join(gpus) or "host").lower().split(" to "):
        vendors = [vendor for vendor in _VENDORS if vendor in word]
        if "managed" in word:
            yield from ("managed", *(vendors or gpus))
        elif vendors or "device" in word or "gpu" in word:
            yield from ("device", *(vendors or gpus))
        else:
            yield re.sub(r" *\(\w\)", "", word)


def _variables(job: Job, wanted: Collection[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the wanted variables that the job sets on some node, with the value on each node."""
    nodes = [settings for _, settings in rank_settings(job)]
    for name in wanted:
        if name.isupper() and any(name in settings for settings in nodes):
            yield name, tuple(dict.fromkeys(settings.get(name, "") for settings in nodes))


def _large_bar(job: Job) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield whether AMD GPUs have Large BAR, if it was declared or found; one node without it is enough for `no`."""
    present = job.demand.capabilities
    amd = [node.hardware.capabilities for node in job.nodes if node.hardware.accelerator.platform == "rocm"]
    if "no-large-bar" in present:
        yield "large_bar", ("no",)
    elif "rocm-large-bar" in present or (amd and all("large-bar" in one for one in amd)):
        yield "large_bar", ("yes",)
