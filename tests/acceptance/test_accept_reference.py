"""Cells held against what the matrix says of their speed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.store.cells import read_cells

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]
Latest = Callable[[], Path]
BESIDE = "reference:\n  - {where: {how: slower}, of: {how: good}, fraction: 0.9}\n"


def outcomes(run: Path) -> dict[str, str]:
    return {cell.scenario.rpartition("-")[2]: cell.outcome.kind.value for cell in read_cells(run)}


@pytest.fixture
def held(matrix: Write, stacks: Path) -> Callable[..., None]:
    """Writes demo.yaml with rules, and how long the launches to come take."""

    def write(hows: list[str], rules: str, paces: str) -> None:
        matrix(hows, rules)
        (stacks / "openmpi-5" / "paces").write_text(paces)

    return write


Held = Callable[..., None]


def test_numbers(run_pytest: Run, held: Held, latest: Latest, mode: tuple[str, ...]) -> None:
    rules = (
        "reference:\n  - {where: {how: good}, busbw: {1K: 0.1}, tolerance: 5%}\n  - {where: {how: g*}, latency: 11}\n"
    )
    held(["good"], rules, "1.02")
    assert run_pytest("--hetgpu-matrix", "demo.yaml", *mode).ret == 0
    held(["good"], rules, "1.25")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    assert done.ret == 1
    told = (
        "*slow (new): 1K float32: busbw 0.08 GB/s, expected at least 0.095 (0.1 -5 %) from demo.yaml:10; 10 repeats *"
    )
    done.stdout.fnmatch_lines([told])
    assert outcomes(latest()) == {"good": "slow"}


def test_another_cell_of_the_run(run_pytest: Run, held: Held, latest: Latest, mode: tuple[str, ...]) -> None:
    held(["good", "slower"], BESIDE, "1 1.1")
    if mode != ("-n2",):
        assert run_pytest("--hetgpu-matrix", "demo.yaml", *mode).ret == 0
        held(["good", "slower"], BESIDE, "1 1.3")
        done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
        # Whoever is held against it comes after it in the file: nothing is run twice.
        assert not list(latest().glob("scenarios/*/reference-*"))
    else:
        held(["good", "slower"], BESIDE.replace("0.9", "2"), "1")
        done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    assert done.ret == 1
    assert outcomes(latest()) == {"good": "passed", "slower": "slow"}
    done.stdout.fnmatch_lines(["*slow (new): * of two-ob1-tcp-allreduce-good (demo.yaml:10); *"])


def test_another_cell_that_is_not_selected_is_run_beside(
    run_pytest: Run, held: Held, latest: Latest, mode: tuple[str, ...]
) -> None:
    held(["good", "slower"], BESIDE, "1 1.3")
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "-k", "slower", *mode).ret == 1
    assert outcomes(latest()) == {"slower": "slow"}
    (log,) = latest().glob("scenarios/*-good/reference-*/output.log")
    assert log.stat().st_size
    held(["good", "slower"], BESIDE, "1 1.1")
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "-k", "slower", *mode).ret == 0


def test_another_cell_that_fails_leaves_nothing_to_compare_with(run_pytest: Run, held: Held, latest: Latest) -> None:
    held(["crash", "slower", "faster"], BESIDE.replace("good", "crash").replace("slower", "[slower, faster]"), "1")
    done = run_pytest("--hetgpu-matrix", "demo.yaml")
    assert outcomes(latest()) == {"crash": "crash", "slower": "unknown", "faster": "unknown"}
    why = "not compared at 8 *, 1K * with 0.9 of *-crash (demo.yaml:10): it failed (crash: SIGSEGV@*)"
    done.stdout.fnmatch_lines([f"*unknown (new): {why}"])
    run_pytest("--hetgpu-matrix", "demo.yaml", "-k", "slower or faster")
    assert outcomes(latest()) == {"slower": "unknown", "faster": "unknown"}
    assert len(list(latest().glob("scenarios/*-crash/reference-main/output.log"))) == 1


def test_a_size_that_is_not_run_is_a_usage_error(run_pytest: Run, held: Held, pytester: pytest.Pytester) -> None:
    held(["good"], "reference:\n  - {where: {how: good}, busbw: {2K: 0.1}}\n", "1")
    done = run_pytest("--hetgpu-matrix", "demo.yaml")
    assert done.ret == 4
    complaint = "demo.yaml:10: reference.busbw.2K: workload 'allreduce' is not run at 2K (known: 1K, 8)"
    done.stderr.fnmatch_lines([f"ERROR: {complaint}"])
    assert not pytester.path.joinpath("reports").exists()


def test_a_cells_tolerance_is_the_references_too(run_pytest: Run, held: Held, matrix: Write, stacks: Path) -> None:
    path = matrix(["good"], "reference:\n  - {where: {how: good}, latency: {1K: 10.24}}\n")
    (stacks / "openmpi-5" / "paces").write_text("1.25")
    assert run_pytest("--hetgpu-matrix", "demo.yaml").ret == 1
    path.write_text(path.read_text().replace("sizes: [8, 1K]", "sizes: [8, 1K], tolerance: 30%"))
    assert run_pytest("--hetgpu-matrix", "demo.yaml").ret == 0


@pytest.mark.slow
def test_what_the_run_s_time_left_unsettled_is_run_again_when_it_goes_on(
    run_pytest: Run, held: Held, latest: Latest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fifo").touch()
    monkeypatch.setenv("STANDIN_FIFO", str(tmp_path / "fifo"))
    held(
        ["good-then-hang-then-good"],
        "reference:\n  - {where: {placement: two}, busbw: {1K: 0.1}, tolerance: 5%}\n",
        "1.25 1",
    )
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-budget", "6").ret == 1
    (cell,) = read_cells(latest())
    assert cell.outcome.kind.value == "unknown"
    assert cell.outcome.why.startswith("the run's time was spent (--hetgpu-budget 6)")
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume").ret == 0
    (cell,) = read_cells(latest())
    assert cell.outcome.kind.value == "passed"
