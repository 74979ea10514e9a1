"""Cells of every verdict for the page, some with hostile text."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_hetgpu.model.outcome import LinkBandwidth, RankOutcome, Span, Timeline
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.reporting import report
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CHANGED, CRASHED, FIXED, KNOWN, PASSED, RERUN, run_cell, scenario

EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
CURVE = tuple(
    Measurement("busbw", size / (size + 3e5), "GB/s", MessagePoint(size, "float32"), 2)
    for size in (8, 1024, 1 << 20, 4 << 20)
)
FATES = (RankOutcome(0, "node0", "rocm", "crashed (SIGSEGV)", own=True), RankOutcome(1, "node1", "cuda", "was stopped"))
BROKE_OFF = Timeline((Span(0, 0, 0.25, None), Span(1, 1, -7.0, None)), ("node0", EVIL), 2, 2.0, 60.0)
WHOLE = Timeline((Span(0, 0, 0.25, 1.75), Span(1, 1, 0.3, 1.8)), ("node0", "node1"), 2, 2.0, 2.5, last_row=1.5)
OUTCOMES = {
    "mixed-ucx-send": replace(PASSED, measurements=CURVE, wire=LinkBandwidth(1.17, "pump 1, 4 streams")),
    "mixed-ucx-allreduce": replace(
        CRASHED, why=f"refused {EVIL}", rank_outcomes=FATES, notes=("a", "b"), timeline=BROKE_OFF
    ),
    "mixed-ob1-send": replace(PASSED, measurements=CURVE),
    "mixed-ob1-allreduce": KNOWN,
    "cpu-ucx-send": FIXED,
    "cpu-ucx-allreduce": CHANGED,
    "cpu-ob1-send": replace(PASSED, timeline=WHOLE),
    "cpu-ob1-allreduce": CRASHED,
}


def written(folder: RunFolder, outcomes: dict[str, Any], log: bytes) -> Path:
    """Write a run with these outcomes and a skipped cell; return its page."""
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"])
        for label, outcome in outcomes.items():
            run_cell(folder, journal, label, outcome, log)
        journal.skipped(scenario("mixed-nccl-send"), "no GPU")
    report.build(folder.path, RERUN)
    return folder.path / "index.html"
