"""Every operation, in and out of place: right on every rank, and caught on every rank when it is not."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.workloads.base import ITEM_BYTES, SUMMED, CollectiveSettings, SplitSettings, Workload
from pytest_hetgpu.model.records import MessagePoint
from tests.remote.mpi_runs import PROGRAMS, Mpirun

pytestmark = pytest.mark.real

KINDS = {
    "allreduce": "MpiAllreduce",
    "reduce": "MpiReduce",
    "reduce_scatter": "MpiReduceScatter",
    "broadcast": "MpiBroadcast",
    "allgather": "MpiAllgather",
    "gather": "MpiGather",
    "scatter": "MpiScatter",
    "alltoall": "MpiAlltoall",
    "send_recv": "MpiSendRecv",
    "bidirectional_send_recv": "MpiBidirectionalSendRecv",
}
SUMS = ("allreduce", "reduce", "reduce_scatter")
IN_PLACE = ("allreduce", "reduce", "reduce_scatter", "allgather", "gather", "scatter", "alltoall")
PAIRED = ("send_recv", "bidirectional_send_recv")

ALL = """
import importlib
import sys
from harness import main

ask = sys.argv[1:]
for name, kind in KINDS.items():
    types = SUMMED if name in SUMS else MOVED
    place = ["--in-place", "both"] if name in IN_PLACE else []
    sys.argv[1:] = [*ask, "--dtypes", ",".join(types), *place]
    main(getattr(importlib.import_module(name), kind))
"""


def every(kinds: dict[str, str]) -> str:
    """Return a program that runs operations one after the other with all their types and places."""
    facts = {"KINDS": kinds, "SUMS": SUMS, "IN_PLACE": IN_PLACE, "SUMMED": list(SUMMED), "MOVED": list(ITEM_BYTES)}
    return "".join(f"{name} = {value!r}\n" for name, value in facts.items()) + ALL


def test_the_tables_here_are_those_of_the_workloads() -> None:
    settings = {name: find("workloads", name, Workload).Settings for name in KINDS}  # type: ignore[type-abstract]
    assert tuple(name for name in KINDS if issubclass(settings[name], CollectiveSettings)) == IN_PLACE
    assert {name for name in KINDS if getattr(settings[name], "summed", False)} == set(SUMS)
    for name in KINDS:
        source = (PROGRAMS / f"{name}.py").read_text()
        assert ("splits = True" in source) == issubclass(settings[name], SplitSettings)
        assert ("(MpiReduction)" in source) == (name in SUMS)
        assert ("paired = True" in source) == (name in PAIRED)


@pytest.mark.parametrize("memory", ["host", "unguarded"])
@pytest.mark.parametrize(
    ("ranks", "transport"), [(1, "ob1"), (2, "ob1"), (3, "ob1"), (4, "ob1"), (2, "ucx"), (3, "ucx")]
)
def test_every_operation_is_right_in_every_type_and_place(
    mpirun: Mpirun, ranks: int, transport: str, memory: str
) -> None:
    """Run `unguarded`, too: separate pages as in guarded memory, but accessible."""
    kinds = {name: kind for name, kind in KINDS.items() if name not in PAIRED or ranks % 2 == 0}
    opened = "import memory\nmemory.NO_ACCESS = memory.FULL_ACCESS\n" if memory == "unguarded" else ""
    guarded = ("--memory", "guarded") if memory == "unguarded" else ()
    sizes = [96, 24000]
    args = ("--sizes", ",".join(map(str, sizes)), "--iterations", "2", "--warmup", "1", *guarded)
    ran = mpirun(opened + every(kinds), *args, ranks=ranks, transport=transport)
    assert (ran.returncode, ran.records.corrupt, ran.records.wrong) == (0, 0, ()), ran.text
    wanted = {
        (name, MessagePoint(size, dtype, place))
        for name in kinds
        for size in sizes
        for dtype in (SUMMED if name in SUMS else ITEM_BYTES)
        for place in (("", "in") if name in IN_PLACE else ("",))
    }
    assert {(row.operation, row.point) for row in ran.records.rows} == wanted
    assert ran.records.checks == {rank: {point: 0 for _, point in wanted} for rank in range(ranks)}
    assert ran.records.done == set(range(ranks))


CORRUPT = """
import numpy as np
from harness import main
from NAME import KIND

class Wrong(KIND):
    def step(self):
        super().step()
        whose, what = {64: (0, "result"), 128: (1, "result"), 256: (0, "data"), 512: (1, "data")}.get(
            self.count, (self.rank, "")
        )
        if self.rank == whose and what:
            getattr(self, what).view(np.uint8)[-1:] ^= 1
        if self.count == 1024:
            self.fill()  # as if no step had been done
        if self.count == 2048:
            self.result[:] = np.roll(self.result, 1)

main(Wrong)
"""


@pytest.mark.parametrize("name", KINDS)
def test_one_wrong_bit_on_any_rank_is_caught(mpirun: Mpirun, name: str) -> None:
    program = CORRUPT.replace("NAME", name).replace("KIND", KINDS[name])
    sizes = "64,128,256,512,1024,2048"
    place = ("--in-place", "both") if name in IN_PLACE else ()
    args = ("--sizes", sizes, "--dtypes", "int8", *place, "--iterations", "1", "--warmup", "0")
    ran = mpirun(program, *args)
    places = ("", "in") if place else ("",)
    checks = ran.records.checks
    assert checks.keys() == {0, 1}, ran.text
    for size, rank in ((64, 0), (128, 1)):
        for where in places:
            point = MessagePoint(size, "int8", where)
            assert (checks[rank][point], checks[1 - rank][point]) == (1, 0), (point, ran.text)
    sends = {"broadcast": (), "scatter": (0,)}.get(name, (0, 1))
    for size, rank in ((256, 0), (512, 1)):
        point = MessagePoint(size, "int8")
        assert checks[rank][point] == (rank in sends), (point, ran.text)
        assert any(f"rank {rank}: 1 wrong element at {size} B int8, first" in text for text in ran.records.wrong) == (
            rank in sends
        )
    for size in (1024, 2048):
        gets = {"reduce": (0,), "gather": (0,), "broadcast": (1,)}.get(name, (0, 1))
        for where in places:
            point = MessagePoint(size, "int8", where)
            caught = {rank for rank in (0, 1) if checks[rank][point]}
            # What was never moved out of its place need not move.
            still = {0} if name == "scatter" and where and size == 1024 else set()
            assert caught >= set(gets) - still, (point, ran.text)


def test_wrong_elements_are_told_with_place_and_buffer(mpirun: Mpirun) -> None:
    program = CORRUPT.replace("NAME", "gather").replace("KIND", "MpiGather")
    args = ("--sizes", "64,512", "--dtypes", "int8", "--in-place", "both", "--iterations", "1")
    wrong = mpirun(program, *args).records.wrong
    assert any(
        text.startswith("rank 0: 1 wrong element at 64 B int8 in place, first at [63] of 64 elements: ")
        for text in wrong
    )
    assert any(" at 512 B int8, first at [255] of 256 elements of what it sent: expected " in text for text in wrong)


NO_BARRIER = """
import barrier
from barrier import MpiBarrier
from harness import main

barrier.LATE = 0.7  # on a busy machine the others may come late themselves

class Nothing(MpiBarrier):
    def step(self):
        pass

main(Nothing)
"""


@pytest.mark.parametrize(("ranks", "transport"), [(1, "ob1"), (2, "ob1"), (4, "ob1"), (2, "ucx"), (3, "ucx")])
def test_a_barrier_is_timed_and_holds_everyone(mpirun: Mpirun, ranks: int, transport: str) -> None:
    ran = mpirun(PROGRAMS / "barrier.py", "--iterations", "3", ranks=ranks, transport=transport)
    assert ran.records.checks == {rank: {MessagePoint(0, "none"): 0} for rank in range(ranks)}, ran.text
    (row,) = ran.records.rows
    assert (row.operation, row.point, row.ranks, row.iterations) == ("barrier", MessagePoint(0, "none"), ranks, 3)
    assert ran.returncode == 0
    assert ran.records.done == set(range(ranks))


def test_a_barrier_that_holds_nobody_is_caught(mpirun: Mpirun) -> None:
    ran = mpirun(NO_BARRIER, ranks=2)
    assert ran.records.checks == {0: {MessagePoint(0, "none"): 1}, 1: {MessagePoint(0, "none"): 1}}, ran.text


GUARDED = """
import importlib
import sys
from pathlib import Path
from harness import main

def rights(array):
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, given = line.split()[:2]
        low, high = (int(bound, 16) for bound in bounds.split("-"))
        if low <= address < high:
            return given

def looking(kind):
    class Looking(kind):
        timed = False
        def step(self):
            seen = rights(self.read_by_mpi()) if self.read_by_mpi().size else "-"
            print(f"{self.name},{'in' if self.in_place else ''},{self.rank},{seen}", flush=True)
    return Looking

for name, kind in KINDS.items():
    sys.argv[1:] = ["--sizes", "8192", "--memory", "guarded", *(["--in-place", "both"] if name in IN_PLACE else [])]
    main(looking(getattr(importlib.import_module(name), kind)))
"""


def test_what_is_sent_is_closed_to_the_cpu_during_a_step_only(mpirun: Mpirun) -> None:
    ran = mpirun(f"KINDS, IN_PLACE = {KINDS!r}, {IN_PLACE!r}\n{GUARDED}")
    # Every rank could verify its buffers: they are open again.
    assert ran.returncode == 0, ran.text
    assert ran.records.done == {0, 1}
    seen = {tuple(line.split(",")) for line in ran.text.splitlines() if line.endswith((",---p", ",-"))}
    senders = {"broadcast": (0,), "scatter": (0,)}
    for name in KINDS:
        for rank in (0, 1):
            assert (name, "", str(rank), "---p" if rank in senders.get(name, (0, 1)) else "-") in seen, name
        if name in IN_PLACE:
            assert (name, "in", "0", "---p") in seen, name


@pytest.mark.parametrize("name", ["broadcast", "allgather"])
def test_a_collective_from_guarded_memory_fails(mpirun: Mpirun, name: str) -> None:
    ran = mpirun(PROGRAMS / f"{name}.py", "--sizes", "64", "--memory", "guarded", "--iterations", "1")
    assert ran.returncode != 0
    assert "Bad address" in ran.text or "Segmentation fault" in ran.text or "SIGSEGV" in ran.text, ran.text
    assert ran.records.checks == {}


@pytest.mark.parametrize(
    ("name", "args", "complaint"),
    [
        ("allgather", ("--sizes", "12"), "allgather cannot divide 12 bytes of float32 among 2 ranks"),
        ("allreduce", ("--sizes", "8", "--dtypes", "float16"), "allreduce cannot sum float16"),
        ("broadcast", ("--sizes", "8", "--in-place", "true"), "argument --in-place: invalid choice"),
        ("gather", ("--sizes", "8", "--memory", "gaurded"), "argument --memory: invalid choice"),
        ("scatter", (), "the following arguments are required: --sizes"),
    ],
)
def test_what_cannot_be_is_refused(mpirun: Mpirun, name: str, args: tuple[str, ...], complaint: str) -> None:
    ran = mpirun(PROGRAMS / f"{name}.py", *args)
    assert complaint in ran.text
    assert ran.returncode != 0
