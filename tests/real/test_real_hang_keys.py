"""Ten real hangs, each run ten times: ten keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.logs.parse import read_evidence
from pytest_hetgpu.cluster import stack_dump
from pytest_hetgpu.extensions.runtimes.agent.look import py_spy
from pytest_hetgpu.extensions.runtimes.local import Local
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.model.verdict import Kind

pytestmark = [pytest.mark.real, pytest.mark.nightly(reason="takes 15 minutes: a hundred runs into a time limit")]

RUNS = 10
ENV = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
TRANSPORT = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")
HEAD = "import fcntl, os, sys, time\n"
MPI = f"{HEAD}from mpi4py import MPI\nworld, data = MPI.COMM_WORLD, bytearray(8)\n"
ELSEWHERE = "def compute():\n    time.sleep(600)\n"
LOCK = """\
def take_lock():
    fcntl.flock(file, fcntl.LOCK_EX)
file = open(sys.argv[1], "w")
if not world.rank:
    take_lock()
world.Barrier()
take_lock() if world.rank else world.Barrier()
"""
LATE = """\
def prepare():
    time.sleep(600)
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    prepare()
from mpi4py import MPI
"""
# The key of each hang, and its program for two ranks.
HANGS = {
    "Init_thread+prepare": HEAD + LATE,
    "Recv": f"{MPI}world.Recv(data, source=1 - world.rank)\n",
    "Barrier+compute": f"{MPI}{ELSEWHERE}compute() if world.rank else world.Barrier()\n",
    "Bcast+Recv": f"{MPI}world.Bcast(data) if world.rank else world.Recv(data, source=1, tag=9)\n",
    "Allreduce+compute": f"{MPI}{ELSEWHERE}compute() if world.rank else world.Allreduce(MPI.IN_PLACE, data)\n",
    "Wait": f"{MPI}world.Irecv(data, source=1 - world.rank).Wait()\n",
    "Probe": f"{MPI}world.Probe(source=1 - world.rank)\n",
    "Barrier+take_lock": MPI + LOCK,
    "compute": f"{MPI}{ELSEWHERE}compute()\n",
}
GLOO = """\
import os
import torch.distributed
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
torch.distributed.init_process_group("gloo", "file://" + __import__("sys").argv[1], rank=rank, world_size=3)
"""


@pytest.fixture
def keys(tmp_path: Path, lacking: Callable[[str, str], None]) -> Callable[..., Counter[str]]:
    """Runs a program on two ranks of a stack into a time limit, `RUNS` times; how often which key was found."""
    if py_spy() is None:
        lacking("py-spy", "py-spy is not installed")

    def key(prefix: Path, program: Path, number: int, seconds: float) -> str:
        folder = tmp_path / f"{program.stem}-{number}"
        folder.mkdir()
        output = folder / "output.log"
        ranks = (str(prefix / "bin" / "python"), str(program), str(folder / "file"))
        argv = (str(prefix / "bin" / "mpirun"), *TRANSPORT, "-np", "2", *ranks)
        overdue = partial(stack_dump.record, others={}, output=output, ranks=2)
        result = Local().run(Command(argv, ENV), output=output, timeout=seconds, overdue=overdue)
        assert result.timed_out, output.read_text()
        found = [one for one in read_evidence(output).signatures if one.primary_line.startswith("hetgpu: ")]
        assert [one.kind for one in found] == [Kind.HANG], output.read_text()
        return found[0].key

    def keys_of(prefix: Path, text: str, seconds: float = 5.0) -> Counter[str]:
        program = tmp_path / "program.py"
        program.write_text(text)
        return Counter(key(prefix, program, number, seconds) for number in range(RUNS))

    return keys_of


@pytest.mark.parametrize("expected", HANGS)
def test_ten_runs_of_one_hang_have_one_key(
    keys: Callable[..., Counter[str]], stack_prefix: Path, expected: str
) -> None:
    assert keys(stack_prefix, HANGS[expected]) == {f"stuck@{expected}": RUNS}


def test_ten_runs_of_a_group_that_is_never_complete_have_one_key(
    keys: Callable[..., Counter[str]], stacks_here: Callable[[str], Path]
) -> None:
    found = keys(stacks_here("openmpi-5-torch"), GLOO, seconds=20.0)
    assert found == {"stuck@torch.distributed.init_process_group": RUNS}
