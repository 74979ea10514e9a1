"""A real mpirun under `Local`: nothing of it is left after a hang, and it starts from wherever pytest runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

import pytest_hetgpu
from pytest_hetgpu.model import Command
from pytest_hetgpu.runtimes.local import Local

pytestmark = pytest.mark.real

DRIVER = Path(__file__).parent / "driver.py"
PATIENCE = 60.0


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output.log"


def root_may(command: tuple[str, ...]) -> Command:
    return Command(command, {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})


def mpirun(stack_prefix: Path, *argv: str, ranks: int = 2) -> tuple[str, ...]:
    prefix = Path(stack_prefix)
    ob1 = ("--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")
    return (str(prefix / "bin" / "mpirun"), "-np", str(ranks), *ob1, str(prefix / "bin" / "python"), *argv)


def test_a_hanging_mpirun_leaves_no_orphan(output: Path, stack_prefix: Path) -> None:
    hang = """if True:
        import os, signal
        from mpi4py import MPI
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, b"rank%d %d\\n" % (MPI.COMM_WORLD.rank, os.getpid()))
        MPI.COMM_WORLD.recv()
    """
    started = time.monotonic()
    result = Local().run(root_may(mpirun(stack_prefix, "-c", hang)), output=output, timeout=5.0)
    said = [line.split() for line in output.read_text().splitlines() if line.startswith("rank")]
    assert result.timed_out
    assert {rank for rank, _ in said} == {"rank0", "rank1"}
    assert not [pid for _, pid in said if psutil.pid_exists(int(pid))]
    assert time.monotonic() - started < 10


def test_mpirun_starts_even_from_within_a_rank(output: Path, stack_prefix: Path) -> None:
    root = str(Path(pytest_hetgpu.__file__).parent.parent)
    inner = mpirun(stack_prefix, "-c", "from mpi4py import MPI; print('size', MPI.COMM_WORLD.allreduce(1), flush=True)")
    driver = ("env", f"PYTHONPATH={root}", sys.executable, str(DRIVER), "plain")
    outer = (*mpirun(stack_prefix, ranks=1)[:-1], *driver, str(output), "30", "2", *inner)
    result = Local().run(root_may(outer), output=output.with_name("outer.log"), timeout=PATIENCE)
    assert result.returncode == 0
    assert output.read_text().split() == ["size", "2"] * 2
