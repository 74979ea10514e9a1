"""A foreign program's output, judged as that of a run."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.analysis.judge import judge_output
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.job import Command, Hardware, Job, Node, Requirements
from pytest_hetgpu.model.outcome import Outcome, RunResult
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.store.encode import from_json, to_json
from tests.analysis.judges.judge_cases import BANNER, STACK
from tests.extensions.readers.feeding import SAMPLES

PROOF = "  on-host:  all connections are tcp\n"
UCX = "[1.2] [vm:1:0] ucp_context.c:1849 UCX  INFO  Version 1.13.1 (loaded from /x)\n" * 2 + (
    "[1.2] [vm:1:0] ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: tag(tcp/lo)\n"
)
FLOATS = tuple(MessagePoint(1 << power, "") for power in range(2, 6))


def record(**payload: object) -> str:
    text = json.dumps(payload, separators=(",", ":"))
    return f"@hetgpu:{len(text):04d}:{zlib.crc32(text.encode()):08x}:{text}\n"


def greetings(ranks: int = 2, library: str = BANNER, path: str = "/opt/osu_x", **more: object) -> str:
    told = {"name": "osu_x", "looked": [], "versions": {}, **more}
    return "".join(
        record(t="hello", rank=rank, size=ranks, host="vm", pid=rank + 1, library=library, libmpi="")
        + record(t="program", rank=rank, host="vm", path=path, **told)
        for rank in range(ranks)
    )


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.log").read_text(encoding="utf-8")


def foreign(reader: str = "osu", *argv: str, **changes: Any) -> ExternalProgram:
    return replace(ExternalProgram(argv or ("osu_allreduce",), reader, ranks=2, memory="host"), **changes)


Judged = Any


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    def judge(
        text: str,
        program: ExternalProgram,
        points: Sequence[MessagePoint] = (),
        *,
        code: int = 0,
        ranks: int = 2,
        run: dict[str, Any] | None = None,
        family: str = "ob1",
        **demand: Any,
    ) -> Outcome:
        output = tmp_path / "output.log"
        output.write_text(text, encoding="utf-8")
        over = ("ob1/tcp",) if family == "ob1" else (f"{family}/*",)
        asked = Requirements(ranks, STACK, family, over, tuple(points), "osu", external=program, **demand)
        job = Job("m", "c", "c", {}, (Node(0, Hardware("cpu"), "localhost", ranks),), Command(("mpirun",)), 60.0, asked)
        # As `hetgpu report` reads it back.
        stored = from_json(Job, json.loads(json.dumps(to_json(job))))
        assert stored == job
        return judge_output(stored, replace(RunResult(("mpirun",), code, str(output), 0.0, 2.0), **(run or {})))

    return judge


def names(outcome: Outcome) -> list[str]:
    return [item.name for item in outcome.measurements]
