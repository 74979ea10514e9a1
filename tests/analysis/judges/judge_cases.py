"""A run that passes in every respect, and ways to spoil it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_hetgpu.analysis.judges.base import Case
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.job import Command, Expectation, Hardware, Job, Node, Requirements, Stack
from pytest_hetgpu.model.outcome import Evidence, RunResult
from pytest_hetgpu.model.records import Hello, MessagePoint, RankExit, Row
from pytest_hetgpu.model.verdict import Kind

STACK = Stack("openmpi-5", "Open MPI", "5.0.11", "/opt/stack", "/opt/stack/bin/mpirun", "/opt/stack/bin/python")
POINTS = (MessagePoint(8, "float32"), MessagePoint(1024, "float32"))
BANNER = "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11, repo rev: v5.0.11rc1"
SEGV = "SIGSEGV@libuct.so!uct_tcp_ep_am_short"


def job(**demand: Any) -> Job:
    node = Node(0, Hardware("cpu"), "localhost", 2)
    asked = Requirements(
        ranks=2, stack=STACK, transport_family="ob1", transports=("ob1/tcp",), points=POINTS, operation="allreduce"
    )
    return Job("smoke", "cell", "cell", {}, (node, node), Command(("mpirun",)), 60.0, replace(asked, **demand))


def result(**changes: Any) -> RunResult:
    return replace(RunResult(argv=("mpirun",), returncode=0, output="output.log", started=0.0, seconds=2.0), **changes)


def hello(rank: int, **changes: Any) -> Hello:
    return replace(Hello(rank, 2, "vm", 100 + rank, BANNER, "/opt/stack/lib/libmpi.so.40"), **changes)


def evidence(**changes: Any) -> Evidence:
    good = Evidence(
        hellos={rank: hello(rank) for rank in range(2)},
        rows=tuple(Row("allreduce", point, 2, 20, 1e-5) for point in POINTS),
        checks={rank: dict.fromkeys(POINTS, 0) for rank in range(2)},
        done=frozenset({0, 1}),
        transports=("ob1/tcp",),
        versions={"openmpi": "5.0.11"},
    )
    return replace(good, **changes)


def case(demand: dict[str, Any] | None = None, run: dict[str, Any] | None = None, **seen: Any) -> Case:
    return Case(job(**(demand or {})), result(**(run or {})), evidence(**seen))


def signature(kind: Kind = Kind.CRASH, key: str = SEGV, **changes: Any) -> Signature:
    signal = key.partition("@")[0] if kind is Kind.CRASH else None
    return replace(Signature(kind, key, "the line", 7, signal=signal), **changes)


def expectation(*kinds: Kind, **changes: Any) -> Expectation:
    return replace(Expectation(kinds=kinds), **changes)


NOTHING: dict[str, Any] = {
    "hellos": {},
    "rows": (),
    "checks": {},
    "done": frozenset(),
    "transports": (),
    "versions": {},
}
"""What a run shows whose ranks never spoke."""

BROKEN: dict[str, Any] = {"rows": (), "checks": {}, "done": frozenset()}
"""What a run shows whose ranks greeted and then broke."""

__all__ = [
    "BANNER",
    "BROKEN",
    "NOTHING",
    "POINTS",
    "SEGV",
    "STACK",
    "RankExit",
    "case",
    "evidence",
    "expectation",
    "hello",
    "job",
    "result",
    "signature",
]
