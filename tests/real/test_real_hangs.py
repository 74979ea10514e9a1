"""Real jobs that do not end: where their ranks are is said before they are stopped."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.logs.parse import read_evidence
from pytest_hetgpu.cluster import stack_dump
from pytest_hetgpu.extensions.runtimes.agent.look import py_spy
from pytest_hetgpu.extensions.runtimes.local import Local
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.model.outcome import RunResult
from pytest_hetgpu.model.verdict import Kind
from tests.real.nodes_here import AXES, properties

pytestmark = pytest.mark.real

HEAD = """\
import os, signal, sys, time
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
data, result = np.ones(64, "f4"), np.empty(64, "f4")
def train():
"""
ENV = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
Lacking = Callable[[str, str], None]
Hangs = Callable[..., Signature]
Program = Callable[[str], tuple[str, ...]]


@pytest.fixture
def hangs(stack_prefix: Path, tmp_path: Path) -> Hangs:
    """Runs two ranks for some seconds; what its output says of it afterwards."""

    def run(*program: str, seconds: float = 3.0, ranks: int = 2) -> Signature:
        output = tmp_path / "output.log"
        mca = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")
        argv = (str(stack_prefix / "bin" / "mpirun"), *mca, "-np", str(ranks))
        overdue = partial(stack_dump.record, others={}, output=output, ranks=ranks)
        result = Local().run(Command((*argv, *program), ENV), output=output, timeout=seconds, overdue=overdue)
        assert result.timed_out, output.read_text()
        return told(result)

    return run


def told(result: RunResult) -> Signature:
    found = [one for one in read_evidence(Path(result.output)).signatures if one.primary_line.startswith("hetgpu: ")]
    assert len(found) == 1, Path(result.output).read_text()
    assert json.loads(Path(result.output).with_name(stack_dump.FILE).read_text())["nodes"]
    return found[0]


@pytest.fixture
def python(stack_prefix: Path, tmp_path: Path, lacking: Lacking) -> Program:
    """A program for every rank; its lines begin with line 7."""
    if py_spy() is None:
        lacking("py-spy", "py-spy is not installed")

    def program(body: str) -> tuple[str, ...]:
        path = tmp_path / "train.py"
        path.write_text(HEAD + "".join(f"    {line}\n" for line in body.splitlines()) + "train()\n")
        return str(stack_prefix / "bin" / "python"), str(path)

    return program


APART = """\
if world.rank == 0:
    world.Allreduce(data, result)
else:
    {other}
"""


@pytest.mark.parametrize(
    ("other", "words", "key"),
    [
        ("world.Recv(result, source=0)", "waits in MPI_Recv (train.py:10)", "stuck@Allreduce+Recv"),
        ("time.sleep(600)", "is in time.sleep (train.py:10)", "stuck@Allreduce+train"),
        ("os.kill(os.getpid(), 19)", "is stopped (SIGSTOP) in train (train.py:10)", "stuck@Allreduce+stopped"),
    ],
)
def test_who_waits_where(hangs: Hangs, python: Program, other: str, words: str, key: str) -> None:
    found = hangs(*python(APART.format(other=other)))
    assert (found.kind, found.key, found.ranks) == (Kind.HANG, key, (1,))
    assert found.detail == f"rank 0 waits in MPI_Allreduce (train.py:8), rank 1 {words}"
    assert found.entry_point == ("PMPI_Recv" if "Recv" in other else "PMPI_Allreduce")


def test_what_is_slow_but_moves_is_no_hang(hangs: Hangs, python: Program) -> None:
    # So many lines that two looks see another one, however fast the machine is.
    lines = "    sum(range(100_000))\n" * 1000
    body = f"for step in range(10_000):\n    world.Allreduce(data, result)\n{lines}"
    found = hangs(*python(body))
    assert (found.kind, found.key) == (Kind.TIMEOUT, "slow")
    assert " moved: " in found.primary_line


C_PROGRAM = """\
#include <mpi.h>
int main(int argc, char **argv) {
  int rank, value = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank) MPI_Recv(&value, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
"""


def test_a_program_without_python(hangs: Hangs, stack_prefix: Path, tmp_path: Path, lacking: Lacking) -> None:
    if shutil.which("gdb") is None or shutil.which("gcc") is None:
        lacking("gdb", "gdb or gcc is not installed")
    source, program = tmp_path / "app.c", tmp_path / "app"
    source.write_text(C_PROGRAM)
    subprocess.run((str(stack_prefix / "bin" / "mpicc"), "-g", "-o", str(program), str(source)), check=True)
    found = hangs(str(program))
    assert found.detail == "rank 0 waits in MPI_Barrier (app.c:7), rank 1 waits in MPI_Recv (app.c:6)"
    assert (found.key, found.library, found.function) == ("stuck@Barrier+Recv", "libmpi.so.40", "PMPI_Recv")
    assert found.ranks == (1,)


def test_without_tools_the_kernel_is_asked(
    hangs: Hangs, python: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = python(APART.format(other="time.sleep(600)"))
    monkeypatch.setattr("pytest_hetgpu.extensions.runtimes.agent.look.py_spy", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = hangs(*program)
    assert found.kind is Kind.HANG
    assert found.detail == "rank 0 is running, rank 1 is in sleep"
    assert "neither py-spy nor gdb is there" in (tmp_path / "output.log").read_text()


def test_the_stop_does_not_wait_for_a_look_that_hangs(
    hangs: Hangs, python: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = python(APART.format(other="time.sleep(600)"))
    deaf = tmp_path / "py-spy"
    deaf.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(100)\n")
    deaf.chmod(0o755)
    monkeypatch.setattr("pytest_hetgpu.extensions.runtimes.agent.look.py_spy", lambda: str(deaf))
    monkeypatch.setattr(stack_dump, "SECONDS", 1.0)
    found = hangs(*program)
    assert found.detail == "rank 0 is running, rank 1 is in sleep"


def test_ranks_in_containers_are_seen_too(nodes: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> None:
    axes = AXES.replace("[one, one]", "[one, other]")
    nodes(axes.replace("{allreduce: {sizes: [8, 64K]}}", "{hang: {kind: fault, fault: hang, timeout: 8}}"))
    (cell,) = properties(pytester.path / "reports").values()
    assert (cell["outcome"], cell["signature"]) == ("hang", "stuck@Allreduce+hang")
    assert re.search(r"rank 0 waits in MPI_Allreduce \(fault\.py:\d+\), rank 1 is in pause \(fault\.py", cell["why"])
    folder = pytester.path / "reports" / "latest"
    kept = json.loads((folder / "scenarios" / "pair-ob1-hang" / stack_dump.FILE).read_text())["nodes"]
    assert [one["host"] for one in kept] == ["node0", "node1"]
    assert "scenarios/pair-ob1-hang/stacks.json" in (folder / "summary.md").read_text()
    assert "stacks.json" in (folder / "junit.xml").read_text()
