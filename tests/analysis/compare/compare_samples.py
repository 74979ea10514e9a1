"""Runs to compare."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pytest_hetgpu.analysis.compare.sides import Side
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.run_summary import PastCell, PastRun

KEY = "SIGSEGV@libuct.so!uct_tcp_ep_am_short"
OTHER = "SIGBUS@libucp.so!ucp_memcpy"


def busbw(value: float, size: int = 1024, dtype: str = "float32", place: str = "", ranks: int = 2) -> Measurement:
    return Measurement("busbw", value, "GB/s", MessagePoint(size, dtype, place), ranks)


def latency(value: float, size: int = 8) -> Measurement:
    return Measurement("latency", value, "us", MessagePoint(size, "float32"), 2)


def good(name: str = "good", *measured: Measurement, matrix: str = "aws", **changes: Any) -> PastCell:
    cell = PastCell(matrix, name, Kind.PASSED, Verdict.OK, tool="allreduce.py", facts={"memory": "host"})
    return replace(cell, measurements=measured, **changes)


def bad(name: str = "bad", key: str = KEY, verdict: Verdict = Verdict.NEW, kind: Kind = Kind.CRASH) -> PastCell:
    return PastCell("aws", name, kind, verdict, signature=key, why="it ended")


def absent(name: str = "good") -> PastCell:
    return PastCell("aws", name, Kind.SKIPPED, Verdict.NOT_RUN, why="needs rocm")


def run(*cells: PastCell, name: str = "r1", started: float = 1.7e9, sha: str = "0", machine: str = "h") -> PastRun:
    matrices = tuple(MatrixFile(matrix, f"{matrix}.yaml", sha) for matrix in dict.fromkeys(c.matrix for c in cells))
    return PastRun(name, f"/r/{name}", started, machine, "0.1", matrices, cells)


def side(*cells: PastCell, name: str = "A") -> Side:
    return Side(name, (run(*cells),))


def series(*runs: Iterable[PastCell], name: str = "last:9") -> Side:
    """Runs, the newest first."""
    return Side(name, tuple(run(*cells, name=f"r{place}", started=1.7e9 - place) for place, cells in enumerate(runs)))
