"""A sample of a matrix; without xdist, with -n0 and with -n2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.store.cells import read_run

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Latest = Callable[[], Path]
MATRIX = """\
name: demo
hardware:
  cpu: {platform: cpu}
axes:
  placement: {two: [cpu, cpu], other: [cpu, cpu]}
  transport: {ob1-tcp: {family: ob1}, ob1-sm: {family: ob1}}
  workload: {allreduce: {sizes: 8}, reduce: {sizes: 8}}
  tuning: {north: {env: {ANY: n}}, south: {env: {ANY: s}}, west: {env: {ANY: w}}}
  how: {good: {env: {BEHAVE: good}}, crash: {env: {BEHAVE: crash}}}
exclude: [{where: {tuning: west, how: crash}, reason: r}]
"""


@pytest.fixture(autouse=True)
def _matrix(pytester: pytest.Pytester) -> None:
    (pytester.path / "demo.yaml").write_text(MATRIX)


def ids(run: Path) -> set[str]:
    return {cell.scenario for cell in read_run(run).cells}


def test_pairs(run_pytest: Run, latest: Latest, mode: tuple[str, ...]) -> None:
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-strategy", "pairwise", *mode)
    assert done.ret == 1
    run = latest()
    count = len(ids(run))
    assert 6 <= count <= 9
    line = f"{count} of 40 cells: all 47 pairs, * % of triples"
    done.stdout.fnmatch_lines([f"sample of demo, pairwise: {line}"])
    assert "Sample of demo (pairwise): " in (run / "summary.md").read_text()
    assert "Sample of demo (pairwise): " in (run / "index.html").read_text()
    first = ids(run)
    # What failed in the run before is in the next sample, too.
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-strategy", "pairwise@5", *mode)
    failed = {name for name in first if name.endswith("crash")}
    assert failed
    assert failed <= ids(latest())


def test_the_cells_that_were_left_out_count_for_conditions(run_pytest: Run, latest: Latest) -> None:
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-strategy", "pairwise")
    (several,) = json.loads((latest() / "boundary.json").read_text())["matrices"].values()
    assert several[-1]["where"] == "how=crash (i.e. BEHAVE=crash)"
    assert several[-1]["matching"] == 16
    assert several[-1]["run"] < 9


def test_controls_come_from_the_cells_that_were_left_out(run_pytest: Run, latest: Latest) -> None:
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-strategy", "pairwise", "--hetgpu-controls", "12")
    done.stdout.fnmatch_lines(["control 1: *"])
    (several,) = json.loads((latest() / "boundary.json").read_text())["matrices"].values()
    assert (several[-1]["where"], several[-1]["state"]) == ("how=crash (i.e. BEHAVE=crash)", "established")


def test_a_resumed_run_has_its_sample(run_pytest: Run, latest: Latest) -> None:
    arguments = ("--hetgpu-matrix", "demo.yaml", "--hetgpu-strategy", "pairwise")
    run_pytest(*arguments, "-x")
    before = ids(latest())
    done = run_pytest(*arguments, "--hetgpu-resume")
    assert before < ids(latest())
    done.stdout.fnmatch_lines([f"sample of demo, pairwise: {len(ids(latest()))} of 40 cells: all 47 pairs, *"])


def test_another_strategy_is_a_usage_error(run_pytest: Run) -> None:
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-strategy", "some")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: --hetgpu-strategy: 'some' is none of full, pairwise, 3-wise, *"])
