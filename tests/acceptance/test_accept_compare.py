"""`hetgpu compare` over real sessions; without xdist, with -n0 and with -n2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]
Latest = Callable[[], Path]
CRASH = "SIGSEGV@libuct.so!uct_tcp_ep_am_short"


@pytest.fixture
def compare(pytester: pytest.Pytester) -> Callable[..., tuple[int, str]]:
    """Runs the command in pytester's folder; gives its exit code and all that it said."""

    def run(*arguments: str) -> tuple[int, str]:
        command = (sys.executable, "-m", "pytest_hetgpu.cli", "compare", *arguments)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HETGPU_")}
        done = subprocess.run(
            command, cwd=pytester.path, capture_output=True, text=True, timeout=60, check=False, env=environ
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    return run


Compare = Callable[..., tuple[int, str]]


@pytest.mark.slow
def test_what_got_worse_and_better_from_run_to_run(
    run_pytest: Run, matrix: Write, latest: Latest, mode: tuple[str, ...], compare: Compare, stacks: Path
) -> None:
    path = matrix(["good", "other"])
    run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    first = latest().name
    path.write_text(path.read_text().replace("{BEHAVE: other}", "{BEHAVE: crash}"))
    launcher = stacks / "openmpi-5" / "bin" / "mpirun"
    launcher.write_text(launcher.read_text().replace("size * 1e-8", "size * 2e-8"))
    run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    code, said = compare("last:10", "latest")
    assert code == 1
    for line in (
        f"  two-ob1-tcp-allreduce-other: passed -> crash {CRASH} (new)",
        "    1K float32  busbw 0.1 -> 0.05 GB/s (-50.0 %), latency 10.24 -> 20.48 us (+100.0 %)",
        f"  new   {CRASH}: two-ob1-tcp-allreduce-other",
        "note    the file of the matrix demo is not the same any more: a cell may mean something else",
    ):
        assert line in said.splitlines()
    assert compare(latest().name, first[:-2])[0] == 0
    code, said = compare(f"reports/{first}", "latest", "--json", "--tolerance", "200")
    assert (code, [one["way"] for one in json.loads(said)["cells"]]) == (1, ["worse"])
    assert {one["way"] for one in json.loads(said)["numbers"]} == set()


def test_the_history_is_enough_and_so_is_either_junit_file(
    run_pytest: Run, matrix: Write, latest: Latest, mode: tuple[str, ...], compare: Compare, pytester: pytest.Pytester
) -> None:
    matrix(["good", "crash"])
    run_pytest("--hetgpu-matrix", "demo.yaml", "--junitxml", "pytests.xml", *mode)
    run = latest()
    (run / "junit.xml").rename(pytester.path / "ours.xml")
    run.rename(pytester.path / "elsewhere")
    for one in (run.name, "elsewhere", "ours.xml", "pytests.xml"):
        for other in (run.name, "elsewhere", "ours.xml", "pytests.xml"):
            code, said = compare(one, other)
            assert code == 0, said
            assert "of 2 cells in common 2 are as they were; of 6 numbers 6 are within 10 %" in said


def test_a_run_of_some_cells(run_pytest: Run, matrix: Write, mode: tuple[str, ...], compare: Compare) -> None:
    matrix(["good", "other"])
    run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-cell", "two-ob1-tcp-allreduce-good", *mode)
    code, said = compare("last:1", "latest")
    assert code == 1
    assert "  two-ob1-tcp-allreduce-other: was passed, is not there any more" in said
    assert compare("last:1", "latest", "--common")[0] == 0


def test_a_baseline_of_another_matrix_is_refused_and_named(
    run_pytest: Run, matrix: Write, latest: Latest, mode: tuple[str, ...], compare: Compare
) -> None:
    matrix(["good"])
    run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    first = latest().name
    matrix(["good"], name="other")
    run_pytest("--hetgpu-matrix", "other.yaml", *mode)
    told = f"ERROR: nothing in common: reports/{first} is of another matrix (demo) than latest (other)\n"
    assert compare(first, "latest") == (4, told)
    assert compare("nonsense", "latest")[0] == 4
