"""A series over ranks: its cells, its judge, and what the reports say of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.store.cells import read_cells

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]
SERIES = """\
scaling:
  placement: {hardware: cpu, ranks_per_node: [2, 4]}
  kind: weak
  transport: ob1-tcp
  workload: allreduce
  how: good
  reference: {efficiency: {4: 0.8}}
"""
LARGE = "cpu-weak-1x4-ob1-tcp-allreduce-good"


def test_an_efficiency_below_its_least_is_slow(
    run_pytest: Run, matrix: Write, stacks: Path, latest: Callable[[], Path], mode: tuple[str, ...]
) -> None:
    path = matrix(["good"], SERIES)
    path.write_text(path.read_text().replace("{two: [cpu, cpu]}", "{two: [cpu, cpu, cpu]}"))
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "-k", "weak", *mode).ret == 0
    (stacks / "openmpi-5" / "paces").write_text("1" if mode == ("-n2",) else "1 2.5")
    if mode == ("-n2",):
        # The order of cells is not known; so more is asked than there is.
        path.write_text(path.read_text().replace("0.8", "1.9"))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "-k", "weak", *mode)
    assert done.ret == 1
    assert {cell.scenario: cell.outcome.kind.value for cell in read_cells(latest())} == {
        "cpu-weak-1x2-ob1-tcp-allreduce-good": "passed",
        LARGE: "slow",
    }
    least = "1.9" if mode == ("-n2",) else "0.8"
    told = f"an efficiency of {least} against cpu-weak-1x2-ob1-tcp-allreduce-good (demo.yaml:15)"
    done.stdout.fnmatch_lines([f"*slow (new): 1K float32: * from {told}; *"])


def test_reports_show_efficiency_interval_and_where_it_stops_scaling(
    run_pytest: Run, matrix: Write, stacks: Path, latest: Callable[[], Path]
) -> None:
    matrix(["good"], SERIES.replace("[2, 4]", "[2, 4, 8]").replace("  reference: {efficiency: {4: 0.8}}\n", ""))
    (stacks / "openmpi-5" / "paces").write_text("1 1.5 4")
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "-k", "weak").ret == 0
    summary = (latest() / "summary.md").read_text()
    rows = re.findall(r"^\| cpu-weak ob1-tcp allreduce good at .*$", summary, re.MULTILINE)
    assert [[part.strip() for part in row.split("|")[2:-1]] for row in rows] == [
        ["weak", "2", "busbw 0.1 GB/s", "100%", "", ""],
        ["weak", "4", "busbw 0.1 GB/s", "100%", "100% to 100%", ""],
        ["weak", "8", "busbw 0.04375 GB/s", "44%", "44% to 44%", ""],
    ]
    knee = "scales to 4 ranks (efficiency 100%); 44% at 8 ranks"
    assert f"(weak): {knee}\n" in summary
    facts = re.search(
        r'<script type="application/json" id="facts">(.*?)</script>', (latest() / "index.html").read_text()
    )
    assert facts
    (curve,) = json.loads(facts[1])["scaling"]
    assert (curve["kind"], curve["knee"]) == ("weak", knee)
    assert [step[0] for step in curve["steps"]] == [2, 4, 8]
