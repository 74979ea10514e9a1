"""The scenario module that the documentation shows, as users run it: copied beside their matrix."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("stacks")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "test_busbw.py"
Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]


@pytest.fixture
def example(pytester: pytest.Pytester, testinfra: None) -> str:
    shutil.copy(EXAMPLE, pytester.path)
    return EXAMPLE.name


def wired(path: Path, fabric: str) -> None:
    """Says of the matrix's hardware what connects it."""
    path.write_text(path.read_text().replace("{platform: cpu}", f"{{platform: cpu, fabric: {fabric}}}"))


def test_a_cell_that_is_fast_enough_passes(
    run_pytest: Run, matrix: Write, example: str, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    wired(matrix(["good"]), "{netdev: lo, gbps: 1}")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode, example)
    assert done.ret == 0
    done.assert_outcomes(passed=1)
    assert (pytester.path / "reports/latest/summary.md").exists()


def test_a_cell_that_is_too_slow_fails_with_the_figure(run_pytest: Run, matrix: Write, example: str) -> None:
    wired(matrix(["good"]), "{gbps: 10}")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", example)
    assert done.ret == 1
    done.stdout.fnmatch_lines(["*two-ob1-tcp-allreduce-good: busbw*1024,float32* is 0.100, wanted 0.312 GB/s*"])


def test_a_node_that_is_not_as_it_should_be_is_an_error_and_runs_nothing(
    run_pytest: Run, matrix: Write, example: str, pytester: pytest.Pytester
) -> None:
    wired(matrix(["good"]), "{netdev: nosuch0}")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", example)
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*localhost has no nosuch0*"])
    assert not list(pytester.path.glob("reports/latest/scenarios/*/output.log"))


def test_what_fails_by_itself_says_why_before_any_figure(run_pytest: Run, matrix: Write, example: str) -> None:
    matrix(["crash"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", example)
    assert done.ret == 1
    done.stdout.fnmatch_lines(["*signature: SIGSEGV@libuct.so!uct_tcp_ep_am_short"])
    done.stdout.no_fnmatch_line("*wanted*GB/s*")


def test_the_documentation_shows_this_file() -> None:
    text = (ROOT / "docs" / "how-to" / "scenarios.md").read_text()
    assert re.findall(r"^ *```python\n *--8<-- \"(\S+)\"$", text, re.MULTILINE) == ["examples/test_busbw.py"]
