"""Counts of the kernel's OOM kills on a node, compared before and after a command. Pure.

`oom_kill` (since Linux 4.13) in a control group's `memory.events` (v2) or `memory.oom_control` (v1) counts killed
processes of that group. In `/proc/vmstat` it counts those of all users of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

OWN = "/proc/self/cgroup"
MACHINE = "/proc/vmstat"
_V2, _V1 = "/sys/fs/cgroup", "/sys/fs/cgroup/memory"
_COUNT = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)


@lru_cache(maxsize=64)
def places(cgroups: bytes | None) -> tuple[str, ...]:
    """Return files that may count for processes of these control groups (/proc/self/cgroup), the nearest first.

    A container mounts the folder of its own group as the root.
    """
    found: list[str] = []
    for line in (cgroups or b"").decode(errors="replace").splitlines():
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "-", "")
        path = path.rstrip("/")
        if "/.." in path or not path.startswith(("/", "")):
            path = ""
        if controllers == "":
            found += [f"{_V2}{path}/memory.events", f"{_V2}/memory.events"]
        elif "memory" in controllers.split(","):
            found += [f"{_V1}{path}/memory.oom_control", f"{_V1}/memory.oom_control"]
    return tuple(dict.fromkeys((*found, MACHINE)))


def count(files: Mapping[str, bytes | None]) -> tuple[str, int] | None:
    """Return the first of these files that counts, with its count, or None."""
    for path, text in files.items():
        match = _COUNT.search(text or b"")
        if match:
            return path, int(match[1])
    return None


def describe(node: str, before: tuple[str, int] | None, after: tuple[str, int] | None) -> str:
    """Return a line on the kills between two counts, or "" if there were none or they are unknown."""
    if not before or not after or before[0] != after[0] or after[1] <= before[1]:
        return ""
    killed = after[1] - before[1]
    whose = "of this machine" if after[0] == MACHINE else "of its control group"
    what = f"{killed} process{'es' * (killed > 1)} {whose}"
    return f"hetgpu: out of memory on {node}: the kernel's OOM killer ended {what} (oom_kill in {after[0]})"
