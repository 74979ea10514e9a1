"""A real mpirun under `Local`: nothing of it is left after a hang, and a rank may itself run commands."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

import pytest_hetgpu
from pytest_hetgpu.extensions.runtimes.local import Local
from pytest_hetgpu.model.job import Command

pytestmark = pytest.mark.real

DRIVER = Path(__file__).parent / "driver.py"
PATIENCE = 60.0


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output.log"


def root_may(command: tuple[str, ...]) -> Command:
    return Command(command, {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})


def mpirun(stack_prefix: Path, *argv: str) -> tuple[str, ...]:
    ob1 = ("--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")
    return (str(stack_prefix / "bin" / "mpirun"), "-np", "2", *ob1, *argv)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files are put that are not to last."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_a_hanging_mpirun_leaves_no_orphan_and_no_file(output: Path, stack_prefix: Path, temporary: Path) -> None:
    hang = """if True:
        import os, signal
        from mpi4py import MPI
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, b"rank%d %d\\n" % (MPI.COMM_WORLD.rank, os.getpid()))
        MPI.COMM_WORLD.recv()
    """
    started = time.monotonic()
    command = root_may(mpirun(stack_prefix, str(stack_prefix / "bin" / "python"), "-c", hang))
    result = Local().run(command, output=output, timeout=5.0)
    said = [line.split() for line in output.read_text().splitlines() if line.startswith("rank")]
    assert result.timed_out
    assert {rank for rank, _ in said} == {"rank0", "rank1"}
    assert not [pid for _, pid in said if psutil.pid_exists(int(pid))]
    assert time.monotonic() - started < 10
    assert list(temporary.iterdir()) == []


def test_what_a_killed_mpirun_left_is_not_in_the_way_of_its_namesake(
    output: Path, stack_prefix: Path, temporary: Path
) -> None:
    """Whose process number the new one happens to get; Open MPI 5 alone would end with 213 then."""
    with subprocess.Popen(("true",)) as last:
        numbers = range(last.pid + 1, last.pid + 500)
    for number in numbers:
        folder = temporary / f"ompi.{number}"
        folder.mkdir(0o700)
        (folder / f"pmix.{socket.gethostname()}.tool.{number}").touch()
    result = Local().run(root_may(mpirun(stack_prefix, "true")), output=output, timeout=PATIENCE)
    assert (result.returncode, output.read_text()) == (0, "")


def test_what_a_rank_runs_is_no_rank_of_its_job(output: Path, stack_prefix: Path) -> None:
    root = str(Path(pytest_hetgpu.__file__).parent.parent)
    alone = (str(stack_prefix / "bin" / "python"), "-c", "from mpi4py import MPI; print('size', MPI.COMM_WORLD.size)")
    driver = (f"PYTHONPATH={root}", sys.executable, str(DRIVER), "plain", str(output), "30", "2", *alone)
    outer = root_may(mpirun(stack_prefix, "env", *driver))
    result = Local().run(outer, output=output.with_name("outer.log"), timeout=PATIENCE)
    assert result.returncode == 0
    assert output.read_text().split() == ["size", "1"] * 2
