"""Frames of crashes in programs of the user: from faulthandler for Python, from a core file for other programs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from junitparser import JUnitXml

from pytest_hetgpu.extensions.runtimes.process import cores

pytestmark = [pytest.mark.real]

MATRIX = """\
name: frames
hardware: {{cpu: {{}}}}
axes:
  placement: {{two: [cpu, cpu]}}
  transport: {{gloo: {{family: gloo}}}}
  workload:
    deliberate: {{kind: command, argv: ["{{python}}", {folder}/deliberate.py], mpi: false, check: false}}
    library: {{kind: command, argv: ["{{python}}", {folder}/library.py], mpi: false, check: false}}
    module: {{kind: command, argv: ["{{python}}", {folder}/module.py], mpi: false, check: false}}
    other: {{kind: command, argv: ["{{python}}", {folder}/module.py, other], mpi: false, check: false}}
    program: {{kind: command, argv: [{folder}/solver, fail], mpi: false, check: false}}
  launcher: [{launcher}]
  stack: [openmpi-5-torch]
"""
DELIBERATE = """\
import ctypes
import os

def read_null():
    ctypes.string_at(0)

if os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "1":
    read_null()
"""
LIBRARY = """\
import ctypes
from pathlib import Path

def compute():
    ctypes.CDLL(str(Path(__file__).with_name("kernel.so"))).broken_kernel(None)

compute()
"""
MODULE = """\
import ctypes
import sys

if sys.argv[1:]:
    ctypes.memmove(0, b"abc", 3)
ctypes.string_at(0)
"""
SOLVER = """\
static int __attribute__((noinline)) solve(volatile int *cell) { return *cell; }
int main(int count, char **words) { (void)words; return count > 1 ? solve(0) : 0; }
"""


@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_each_kind_of_program_has_a_frame(
    pytester: pytest.Pytester,
    stacks_here: Callable[[str], Path],
    lacking: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    launcher: str,
) -> None:
    if shutil.which("gcc") is None:
        lacking("gcc", "there is no gcc here: apt-get install gcc")
    folder = pytester.path
    for name, text in {"deliberate.py": DELIBERATE, "library.py": LIBRARY, "module.py": MODULE, "s.c": SOLVER}.items():
        (folder / name).write_text(text)
    (folder / "k.c").write_text("int broken_kernel(int *cell) { return *cell; }\n")
    subprocess.run(("gcc", "-g", "-shared", "-fPIC", "k.c", "-o", "kernel.so"), cwd=folder, check=True)
    subprocess.run(("gcc", "-g", "s.c", "-o", "solver"), cwd=folder, check=True)
    home = tmp_path_factory.mktemp("stacks")
    (home / "openmpi-5-torch").symlink_to(stacks_here("openmpi-5-torch"))
    for name, value in {"LEASES": tmp_path_factory.mktemp("leases"), "PREFLIGHT": "off", "STACKS": home}.items():
        monkeypatch.setenv(f"HETGPU_{name}", str(value))
    (folder / "m.yaml").write_text(MATRIX.format(folder=folder, launcher=launcher))
    result = pytester.runpytest_subprocess("--hetgpu-matrix", "m.yaml", "-p", "no:cacheprovider", timeout=500)
    assert result.ret == 1
    suites = JUnitXml.fromfile(str(folder / "reports" / "latest" / "junit.xml"))
    cells = {
        case.name.split("-")[2]: {str(p.get("name")): p.get("value") for p in case._elem.iter("property")}
        for suite in suites
        for case in suite
    }
    keys = {name: cell.get("signature", "") for name, cell in cells.items()}
    assert keys["deliberate"].endswith(("@deliberate.py!read_null", "!string_at")), keys
    assert "broken_kernel" in keys["library"] or keys["library"] == "SIGSEGV@library.py!compute", keys
    assert keys["module"] != keys["other"], keys
    assert {keys["module"].partition("@")[0], keys["other"].partition("@")[0]} == {"SIGSEGV"}
    if not cores.obstacle():
        assert keys["program"] == "SIGSEGV@solver!solve", keys
    # No core file is left beside the user's files.
    assert not [*folder.glob("core*")]
