"""Cells, jobs and outcomes that the tests of the reports share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_hetgpu.model.failure import Condition, Signature
from pytest_hetgpu.model.job import (
    Accelerator,
    Command,
    Exclusion,
    Expectation,
    Fabric,
    Hardware,
    Job,
    Node,
    Origin,
    Requirements,
    Scenario,
    Stack,
)
from pytest_hetgpu.model.outcome import Finding, Outcome, RunResult
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.cells import CellRecord, State

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_hetgpu.store.folder import RunFolder
    from pytest_hetgpu.store.journal import Journal

KEY = "SIGSEGV@libuct_rocm.so!uct_rocm_copy_ep_put_short"
ISSUE = "https://github.com/openucx/ucc/issues/1043"
AXES = ("placement", "transport", "workload")

STACK = Stack("openmpi-5", "Open MPI", "5.0.11", "/opt/ompi", "/opt/ompi/bin/mpirun", "/opt/ompi/bin/python")
SIGNATURE = Signature(
    Kind.CRASH, KEY, "Caught signal 11 (Segmentation fault)", 66, signal="SIGSEGV", library="libuct_rocm.so", ranks=(0,)
)
EXPECTED = Expectation(
    (Kind.CRASH,),
    (KEY,),
    when=(Condition("ucx", "<1.18"),),
    issue=ISSUE,
    remedy={"env": {"UCX_ROCM_COPY_D2H_THRESH": "0"}},
    origin=Origin("aws.yaml", 30),
)
MEASURED = (
    Measurement("busbw", 1.25, "GB/s", MessagePoint(1048576, "float32"), 2),
    Measurement("latency", 15.5, "us", MessagePoint(8, "float32"), 2),
)

PASSED = Outcome(
    Kind.PASSED, Verdict.OK, measurements=MEASURED, stack="Open MPI v5.0.11", transports=("tcp",), seconds=1.5
)
CRASHED = Outcome(
    Kind.CRASH,
    Verdict.NEW,
    "rank 0 died of SIGSEGV",
    SIGNATURE,
    findings=(
        Finding("signature", Kind.CRASH, "SIGSEGV in libuct_rocm.so", SIGNATURE),
        Finding("completeness", Kind.ERROR, "rank 1 never said that it was done"),
    ),
    stack="Open MPI v5.0.11",
    seconds=3.25,
)
KNOWN = replace(CRASHED, verdict=Verdict.KNOWN, expectation=EXPECTED)
CHANGED = Outcome(Kind.HANG, Verdict.CHANGED, "no output for 60 s", expectation=EXPECTED, seconds=60.0)
FIXED = replace(PASSED, verdict=Verdict.FIXED, expectation=EXPECTED)
UNREAD = Outcome(Kind.UNKNOWN, Verdict.NEW, "return code 3, and nothing that we can read")
NOT_RUN = Outcome(Kind.SKIPPED, Verdict.NOT_RUN, "needs platform=rocm (give --hetgpu-inventory)")


def job(label: str = "mixed-ucx-send_recv", **changes: Any) -> Job:
    """A job whose axes' values are the label's parts."""
    made = Job(
        matrix="aws",
        scenario=label,
        label=label,
        axes=dict(zip(AXES, label.split("-"), strict=False)),
        nodes=(
            Node(0, Hardware("g4ad", Accelerator("rocm", "gfx1011", memory=8 << 30), Fabric(gbps=10.0)), "10.0.0.1", 1),
            Node(1, Hardware("cpu", capabilities=frozenset({"no-large-bar", "x"})), "localhost", 1),
        ),
        command=Command(("/opt/ompi/bin/mpirun", "-np", "2", "prog"), {"UCX_TLS": "tcp"}),
        timeout=120.0,
        demand=Requirements(
            2, STACK, "ucx", ("tcp",), (MessagePoint(8, "float32"),), "allreduce", expectations=(EXPECTED,)
        ),
    )
    return replace(made, **changes)


def scenario(label: str = "mixed-nccl-ddp") -> Scenario:
    return Scenario("aws", label, label, AXES, tuple(label.split("-")), excluded=Exclusion("never", ISSUE))


def result(output: str = "output.log", returncode: int | None = 0) -> RunResult:
    return RunResult(("/opt/ompi/bin/mpirun", "-np", "2", "prog"), returncode, output, started=1.7e9, seconds=2.5)


def cell(label: str, outcome: Outcome, /, **changes: Any) -> CellRecord:
    """A judged cell as it is read from a journal."""
    made = CellRecord(
        matrix="aws",
        scenario=label,
        label=label,
        axes=dict(zip(AXES, label.split("-"), strict=False)),
        argv=("/opt/ompi/bin/mpirun", "-np", "2", "prog"),
        state=State.JUDGED,
        outcome=outcome,
        result=result(),
        started=1.7e9,
    )
    return replace(made, **changes)


def run_cell(folder: RunFolder, journal: Journal, label: str, outcome: Outcome, log: bytes = b"a line\n") -> Path:
    """Everything that running a cell leaves; returns its log."""
    made = job(label)
    path = folder.prepare(label)
    path.write_bytes(log)
    ended = result(str(path))
    journal.planned(made)
    folder.write_job(made)
    journal.started(made)
    journal.finished(made, ended)
    folder.write_job(made, ended)
    journal.judged(made, outcome)
    return path
