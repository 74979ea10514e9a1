"""Output of nccl-tests and rccl-tests, composed: no GPU has written any of it.

The shapes are those of the format strings in src/util.cu of NVIDIA/nccl-tests 2.19.6 and src/common.cu of
ROCm/rccl-tests of 2024.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

BASE = ("size", "count", "type", "redop", "root")
GROUP = ("time", "algbw", "busbw", "#wrong")
PER_ITERATION = ("i_min", "i_max", "i_p99", "i_cv%")


def banner(ranks: int = 2, *, program: str = "all_reduce_perf", validation: int = 1) -> str:
    """Return the lines above the table."""
    devices = "".join(
        f"#  Rank {rank:2d} Group  0 Pid {100 + rank:6d} on {'node':>10s} device {rank:2d} [0000:07:00] NVIDIA H100\n"
        for rank in range(ranks)
    )
    return (
        "# nccl-tests version 2.19.6 nccl-headers=22907 nccl-library=22907\n"
        f"# Collective test starting: {program}\n"
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 "
        f"validation: {validation} graph: 0 unalign: 0\n#\n# Using devices\n{devices}"
    )


def header(group: Sequence[str] = GROUP, base: Sequence[str] = BASE, places: str = "out-of-place in-place") -> str:
    """Return the header's three lines."""
    count = len(places.split())
    units = {"time": "(us)", "cputime": "(us)", "algbw": "(GB/s)", "busbw": "(GB/s)", "i_cv%": "(%)"}
    shown = [units.get(name, "(us)" if name.startswith("i_") else "") for name in group]
    return (
        f"#\n#                         {places.replace(' ', '          ')}\n"
        f"# {'  '.join([*base, *(list(group) * count)])} \n"
        f"# {'  '.join(['(B)', '(elements)', *shown * count])} \n"
    )


def row(size: int, *cells: str, dtype: str = "float", count: int = 0) -> str:
    """Return one line of the table, its cells as `writeBenchmarkLineBody` prints them."""
    head = f"{size:12d}  {count or size // 4:12d}  {dtype:>8s}  {'sum':>6s}  {-1:6d}"
    return head + "".join(f"  {cell:>7s}" for cell in cells) + "\n"


def footer(wrong: int = 0, slow: str = "") -> str:
    """Return the lines below the table."""
    return (
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}\n# Avg bus bandwidth    : 12.5 {slow}\n#\n"
        "# Collective test concluded: all_reduce_perf\n#\n\n"
    )


RCCL = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
rccl-tests: Version develop:ae3e635
# Using devices
#   Rank  0 Pid     10 on       node device  0 [0000:c1:00.0] AMD Instinct MI250X
#   Rank  1 Pid     11 on       node device  1 [0000:c6:00.0] AMD Instinct MI250X
"""
RCCL_FOOTER = """\
# Errors with asterisks indicate errors that have exceeded the maximum threshold.
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.5
#
"""


def document(**changes: Any) -> dict[str, Any]:
    """Return the document of `-J`: two processes with one GPU each, all_reduce of 1 MiB in both places."""
    body = {"time": 100.0, "alg_bw": 10.48576, "bus_bw": 10.48576, "nwrong": 0.0}
    devices = [{"rank": rank, "group": 0, "pid": 7, "hostname": "node", "device": 0} for rank in range(2)]
    result = {
        "size": 1048576,
        "count": 262144,
        "type": "float",
        "redop": "sum",
        "root": "    -1",
        "out_of_place": dict(body),
        "in_place": dict(body),
        "actual_iterations": 20,
        "experiment_name": "",
    }
    return {
        "version": 3,
        "start_time": "2026-07-09 12:00:00",
        "args": ["/opt/all_reduce_perf", "-J", "out.json"],
        "env": ["API_TOKEN=hidden"],
        "nccl_version": 22907,
        "config": {"nthreads": 1, "ngpus": 1, "iterations": 20, "aggregated_iterations": 1, "devices": devices},
        "results": [result],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 10.48576, "okay": "unchecked"},
        "end_time": "2026-07-09 12:00:01",
        "errors": [],
        **changes,
    }


def written(root: dict[str, Any]) -> str:
    """Return the document as one line, as the program writes it."""
    return json.dumps(root, separators=(",", ":"))
