"""The programs under a real mpirun: their records are true, and errors are detected."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_hetgpu.model.records import MessagePoint
from tests.remote.mpi_runs import PROGRAMS, Mpirun, both_transports

OURS = {"accelerator", "cores", "harness", "iterations", "memory", "operations", "records"}
OURS |= {"junit_results", "torch_operations", "torch_profile", "torch_training", "torch_world"}
OURS |= {"tcp_probe_iperf3", "tcp_probe_network", "tcp_probe_streams", "segments"}

pytestmark = pytest.mark.real


def points(sizes: list[int], dtypes: list[str]) -> set[MessagePoint]:
    return {MessagePoint(size, dtype) for size in sizes for dtype in dtypes}


@both_transports
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", ["allreduce", "send_recv", "bidirectional_send_recv"])
def test_every_point_is_timed_and_verified_by_every_rank(
    mpirun: Mpirun, stack_prefix: Path, name: str, ranks: int, transport: str
) -> None:
    dtypes = ["float32", "float64", "int32"]
    args = ("--sizes", "8,1000,300000", "--dtypes", ",".join(dtypes), "--iterations", "3", "--warmup", "1")
    ran = mpirun(PROGRAMS / f"{name}.py", *args, ranks=ranks, transport=transport)
    records, wanted = ran.records, points([8, 1000, 300000], dtypes)
    assert (ran.returncode, records.corrupt, records.wrong) == (0, 0, ()), ran.text
    assert records.checks == dict.fromkeys(range(ranks), dict.fromkeys(wanted, 0))
    assert {row.point for row in records.rows} == wanted
    assert {(row.operation, row.ranks, row.iterations) for row in records.rows} == {(name, ranks, 3)}
    assert records.done == records.hellos.keys() == set(range(ranks))
    for hello in records.hellos.values():
        assert hello.size == ranks
        assert hello.library.startswith("Open MPI v5")
        assert Path(hello.libmpi).parent == stack_prefix.resolve() / "lib"


def test_one_rank_alone_can_reduce(mpirun: Mpirun) -> None:
    ran = mpirun(PROGRAMS / "allreduce.py", "--sizes", "8", ranks=1)
    assert ran.records.checks == {0: {MessagePoint(8, "float32"): 0}}, ran.text
    assert ran.records.done == {0}


def test_a_world_of_odd_size_has_no_pairs(mpirun: Mpirun) -> None:
    ran = mpirun(PROGRAMS / "send_recv.py", "--sizes", "8", ranks=3)
    assert ran.returncode != 0
    assert "send_recv works between pairs of ranks: it needs an even number of them, not 3" in ran.text
    assert not ran.records.done


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("--sizes", "8,2"), "size 2 holds no element of float32 (4 bytes)"),
        (("--sizes", "8,-8"), "argument --sizes"),
        (("--sizes", "8", "--dtypes", "float99"), "float99"),
        (("--sizes", "8", "--iterations", "0"), "0 iterations after 5 of warm-up"),
        (("--sizes", "8", "--repeats", "0"), "0 repeats: at least 1"),
    ],
)
def test_a_point_that_cannot_be_is_refused(mpirun: Mpirun, args: tuple[str, ...], complaint: str) -> None:
    ran = mpirun(PROGRAMS / "allreduce.py", *args, ranks=1)
    assert complaint in ran.text
    assert ran.returncode != 0


WRONG_ON_RANK_1 = """
from allreduce import MpiAllreduce
from harness import main

class Wrong(MpiAllreduce):
    def step(self):
        super().step()
        if self.rank == 1 and self.count > 2:
            self.result[3] = 1000
            self.result[-1] = 0

main(Wrong)
"""


def test_wrong_elements_are_counted_and_the_first_is_shown(mpirun: Mpirun) -> None:
    records = mpirun(WRONG_ON_RANK_1, "--sizes", "8,1024").records
    assert records.checks == {
        0: {MessagePoint(8, "float32"): 0, MessagePoint(1024, "float32"): 0},
        1: {MessagePoint(8, "float32"): 0, MessagePoint(1024, "float32"): 40},
    }
    assert records.wrong == (
        "rank 1: 2 wrong elements at 1024 B float32, first at [3] of 256 elements: expected 15.0, got 1000.0 "
        "(repeat 0, iteration 0)",
    )
    assert records.done == {0, 1}


IDLE_ONCE = """
from allreduce import MpiAllreduce
from harness import main

class Idle(MpiAllreduce):
    steps = 0
    def step(self):
        Idle.steps += 1
        if Idle.steps != 5:  # three steps warm up three results
            super().step()

main(Idle)
"""


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_what_earlier_iterations_left_does_not_pass(mpirun: Mpirun, dtype: str) -> None:
    args = ("--sizes", "1024", "--dtypes", dtype, "--iterations", "3", "--warmup", "1")
    records = mpirun(IDLE_ONCE, *args).records
    count = 1024 // {"float32": 4, "int64": 8, "uint8": 1}[dtype]
    assert records.checks == {0: {MessagePoint(1024, dtype): count}, 1: {MessagePoint(1024, dtype): count}}


RAISES_ON_RANK_1 = """
import time
from allreduce import MpiAllreduce
from harness import main

class Raises(MpiAllreduce):
    def step(self):
        if self.rank == 1:
            raise RuntimeError(f"raised at {time.time()}")
        super().step()

main(Raises)
"""


@both_transports
def test_an_error_on_one_rank_ends_the_job(mpirun: Mpirun, transport: str) -> None:
    ran = mpirun(RAISES_ON_RANK_1, "--sizes", "8", transport=transport)
    raised = re.search(r"RuntimeError: raised at ([\d.]+)", ran.text)
    assert raised, ran.text
    assert ran.ended - float(raised[1]) < 2
    assert ran.returncode != 0
    assert not ran.records.done


FLOOD = """
import os, threading
from mpi4py import MPI
from harness import emit

COUNT = 400
comm = MPI.COMM_WORLD
stop = threading.Event()

def flood():
    text = b"[%d] UCX  DEBUG  " % comm.rank + b"{x}" * 300
    for turn in range(1000):
        os.write(2, text[: 50 + turn * 7 % 800] + (b"\\n" if turn % 3 else b""))

thread = threading.Thread(target=flood)
comm.Barrier()
thread.start()
for index in range(COUNT):
    got = "9" * (index * 37 % 3500)
    emit(t="wrong", rank=comm.rank, size=8, dtype="float32", index=index, expected="1", got=got, count=2)
thread.join()
emit(t="done", rank=comm.rank)
"""


def test_no_record_is_lost_between_four_ranks_and_a_flood_of_debug_lines(mpirun: Mpirun) -> None:
    records = mpirun(FLOOD, ranks=4).records
    assert (len(records.wrong), records.corrupt) == (4 * 400, 0)
    assert records.done == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("transport", "returncode", "cause"),
    [
        ("ob1", 14, r"mca_btl_tcp_frag_send: writev error \(0x[0-9a-f]+, \d+\)\s+Bad address"),
        ("ucx", 139, r"Signal code: Invalid permissions \(2\)[\s\S]*libuct\.so\.0\(uct_tcp_ep_am_short\+"),
    ],
)
def test_guarded_pages_cannot_be_sent(mpirun: Mpirun, transport: str, returncode: int, cause: str) -> None:
    ran = mpirun(PROGRAMS / "guarded_send.py", "--sizes", "64", transport=transport)
    assert ran.returncode == returncode
    assert re.search(cause, ran.text), ran.text
    assert ran.records.hellos.keys() == {0, 1}
    assert (ran.records.checks, ran.records.rows, ran.records.done) == ({}, (), frozenset())


UNGUARDED = """
from guarded_send import MpiGuardedSend
from harness import main

class Unguarded(MpiGuardedSend):
    def guard(self, closed):
        pass

main(Unguarded)
"""


@both_transports
def test_the_same_pages_can_be_sent_without_the_guard(mpirun: Mpirun, transport: str) -> None:
    records = mpirun(UNGUARDED, "--sizes", "64,8192", ranks=4, transport=transport).records
    assert records.checks == dict.fromkeys(range(4), dict.fromkeys(points([64, 8192], ["float32"]), 0))
    assert records.done == {0, 1, 2, 3}


def test_the_programs_need_nothing_of_this_package() -> None:
    imports = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)
    agents = {"segments", *(program.stem for program in PROGRAMS.glob("agent_*.py"))}
    for program in PROGRAMS.glob("*.py"):
        ast.parse(program.read_text(), feature_version=(3, 8))
        known = agents if program.stem.startswith("agent") else OURS | {"mpi4py", "numpy", "torch"}
        used = set(imports.findall(program.read_text()))
        assert used <= known | sys.stdlib_module_names, program


def test_all_points_are_gone_through_as_often_as_asked_and_verified(mpirun: Mpirun) -> None:
    args = ("--sizes", "8,64", "--in-place", "both", "--iterations", "3", "--warmup", "2", "--repeats", "4")
    ran = mpirun(PROGRAMS / "allreduce.py", *args)
    assert ran.returncode == 0
    points = [MessagePoint(size, "float32", place) for size in (8, 64) for place in ("", "in")]
    # A disturbance meets neighbours in time: the repeats of a point are as far apart as they can be.
    assert [(row.repeat, row.point) for row in ran.records.rows] == [(n, point) for n in range(4) for point in points]
    assert {row.iterations for row in ran.records.rows} == {3}
    assert ran.records.checks == {rank: dict.fromkeys(points, 0) for rank in range(2)}
    assert ran.records.done == {0, 1}


def test_wrong_data_are_found_in_every_repeat_and_told_once_in_each(mpirun: Mpirun) -> None:
    ran = mpirun(WRONG_ON_RANK_1, "--sizes", "64", "--iterations", "4", "--repeats", "3")
    ends = [text.rpartition(" (")[2] for text in ran.records.wrong]
    assert ends == [f"repeat {repeat}, iteration 0)" for repeat in range(3)]
    assert ran.records.checks[1] == {MessagePoint(64, "float32"): 3 * 4 * 2}


@pytest.fixture(scope="module")
def spoiling(stack_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that spoils results of MPI (see `spoil.c`)."""
    built = tmp_path_factory.mktemp("spoil") / "spoil.so"
    source = Path(__file__).with_name("spoil.c")
    argv = (f"{stack_prefix}/bin/mpicc", "-shared", "-fPIC", "-Wall", "-Werror", str(source), "-o", str(built))
    subprocess.run(argv, check=True)
    return built


@pytest.mark.parametrize(
    ("name", "dtype", "place", "at", "index", "count"),
    [
        ("allreduce", "float32", "both", "12", 12, 1),
        ("allreduce", "int64", "false", "-1", 8191, 1),
        ("allreduce", "float64", "false", "stale", 0, 8192),
        ("broadcast", "uint8", "false", "-1", 65535, 1),
        ("alltoall", "float16", "true", "0", 0, 1),
        ("send_recv", "int32", "false", "stale", 0, 16384),
        ("bidirectional_send_recv", "float32", "false", "12", 12, 1),
    ],
)
def test_a_library_that_spoils_one_result_in_seventeen_is_caught_wherever_it_is(
    mpirun: Mpirun, spoiling: Path, name: str, dtype: str, place: str, at: str, index: int, count: int
) -> None:
    args = ("--sizes", "64,65536", "--dtypes", dtype, "--warmup", "0", "--repeats", "2")
    in_place = ("--in-place", place) if place != "false" else ()
    env = {"LD_PRELOAD": str(spoiling), "SPOIL_IN": name, "SPOIL_AT": at}
    ran = mpirun(PROGRAMS / f"{name}.py", *args, *in_place, **env)
    assert ran.returncode == 0, ran.text
    sides = {"false": ("",), "true": ("in",), "both": ("", "in")}[place]
    sweeps = [(repeat, side) for repeat in range(2) for side in sides]
    # The last of a dictionary's values counts: here each sweep's first spoilt iteration.
    spoilt = dict(divmod(call, 20) for call in reversed(range(16, 20 * len(sweeps), 17)))
    assert len(ran.records.wrong) == len(spoilt), ran.text
    elements = 65536 * 8 // int(re.sub(r"\D", "", dtype))
    for sweep, iteration in spoilt.items():
        repeat, side = sweeps[sweep]
        begin = (
            f"rank 1: {count} wrong element{'s' * (count > 1)} at 65536 B {dtype}{' in place' * bool(side)}, "
            f"first at [{index}] of {elements} elements: expected "
        )
        end = f" (repeat {repeat}, iteration {iteration})"
        assert any(text.startswith(begin) and text.endswith(end) for text in ran.records.wrong), ran.text
    assert set(ran.records.checks[0].values()) == {0}
    for side in sides:
        assert ran.records.checks[1][MessagePoint(64, dtype, side)] == 0
        assert ran.records.checks[1][MessagePoint(65536, dtype, side)] > 0


def test_what_is_not_timed_is_not_repeated(mpirun: Mpirun) -> None:
    ran = mpirun(PROGRAMS / "guarded_send.py", "--sizes", "64", "--memory", "host", "--repeats", "3")
    assert (ran.returncode, ran.records.rows) == (0, ())
    assert ran.records.done == {0, 1}
