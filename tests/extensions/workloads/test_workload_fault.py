"""Deliberate failures: the choices of a matrix, all of which the program supports."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from pytest_hetgpu.extensions.package_data import PACKAGE
from pytest_hetgpu.extensions.workloads.fault import INSIDE, Fault, FaultSettings, FaultWorkload
from pytest_hetgpu.model.records import MessagePoint

PROGRAM = PACKAGE / "remote" / "fault.py"
MATRIX = """\
name: m
hardware: {{cpu: {{}}}}
axes:
  placement: {{two: [cpu, cpu]}}
  transport: {{ob1: {{}}}}
  workload:
    bad: {{kind: fault, {}}}
"""


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """Import the program as a module: it needs no MPI before it runs."""
    spec = importlib.util.spec_from_file_location("fault_program", PROGRAM)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fault(**settings: Any) -> FaultWorkload:
    return FaultWorkload(FaultSettings.model_validate(settings))


def test_the_program_knows_every_fault_that_a_matrix_may_name(program: ModuleType) -> None:
    assert set(program.FAULTS) == set(get_args(Fault))


def test_faults_within_the_collective_are_done_at_the_collective(program: ModuleType) -> None:
    assert set(INSIDE) <= set(program.AT_THE_COLLECTIVE)


def test_the_program_is_told_who_fails_how_and_when() -> None:
    made = fault(fault="kill", rank="0", when="in")
    assert made.program() == ("fault.py", "--fault", "kill", "--rank", "0", "--when", "in")


def test_every_rank_owes_a_check_and_none_a_timing() -> None:
    assert (fault().points(), fault().measured) == ((MessagePoint(1024, "float32"),), False)


def test_without_settings_nothing_fails() -> None:
    assert fault().program()[:3] == ("fault.py", "--fault", "none")


def test_a_rank_that_is_not_there_cannot_fail() -> None:
    assert fault(fault="kill").unsuitable(2) is None
    assert fault(fault="kill").unsuitable(1) == "fails on rank 1, this placement has only 1"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ("fault: segfalt", "unknown value 'segfalt' (known: abort, "),
        ("fault: segfalt", "did you mean 'segfault'?"),
        ("fault: kill, when: inside", "unknown value 'inside' (known: before, in)"),
        ("fault: kill, rank: -1", "must be at least 0, not '-1'"),
        ("fault: flood, when: in", "the fault 'flood' takes no `when: in` (those that do: segfault, abort, kill,"),
        ("falt: kill", "unknown key 'falt'"),
    ],
)
def test_what_a_matrix_may_not_ask(matrix_errors: Callable[..., list[str]], settings: str, error: str) -> None:
    (found,) = matrix_errors(MATRIX.format(settings))
    assert found.startswith("m.yaml:7: ")
    assert error in found


@pytest.mark.parametrize("name", sorted(set(get_args(Fault)) - set(INSIDE)))
def test_only_faults_of_a_moment_take_place_within_the_collective(name: str) -> None:
    with pytest.raises(ValidationError, match="takes no `when: in`"):
        fault(fault=name, when="in")


def test_a_flood_is_long_bounded_and_sounds_bad() -> None:
    source = f"import runpy; runpy.run_path({str(PROGRAM)!r})['flood']()"
    done = subprocess.run([sys.executable, "-c", source], stdout=subprocess.PIPE, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 50_000
    assert len(done.stdout) < 50_000_000
    assert all(b"Segmentation fault" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "ended"),
    [("segfault", -signal.SIGSEGV), ("kill", -signal.SIGKILL), ("raises", 1), ("no_interpreter", 127)],
)
def test_what_the_faults_do_to_a_process(name: str, ended: int, tmp_path: Path) -> None:
    source = f"import runpy; runpy.run_path({str(PROGRAM)!r})[{name!r}]()"
    done = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == ended
