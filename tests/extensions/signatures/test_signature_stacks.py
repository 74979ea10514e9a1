"""Stacks of waiting processes: output of several tools, and the position of each process."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.analysis.logs.parse import read_evidence
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority
from pytest_hetgpu.extensions.signatures.engine.stacks import (
    Position,
    StackFrame,
    facts,
    parse_facts,
    position_of,
    summarize,
)
from pytest_hetgpu.extensions.signatures.faulthandler import Faulthandler
from pytest_hetgpu.extensions.signatures.stacks import Stacks
from pytest_hetgpu.model.verdict import Kind

PROGRESS = """\
#0  0x00007f185c7498b5 in ?? () from /usr/lib/libopen-pal.so.40
#1  0x00007f185c6f1e74 in opal_progress () from /usr/lib/libopen-pal.so.40
"""
BARRIER = PROGRESS + (
    "#2  0x00007f185ca68bc5 in ompi_request_default_wait () from /usr/lib/libmpi.so.40\n"
    "#3  0x00007f185ca82568 in PMPI_Barrier () from /usr/lib/libmpi.so.40\n"
    "#4  0x000055ce00ef10a7 in main (argc=1, argv=0x7ffe) at wave.c:53\n"
)
RECV = PROGRESS + (
    "#2  0x00007f43740179fd in mca_pml_ob1_recv () from /usr/lib/openmpi3/mca_pml_ob1.so\n"
    "#3  0x00007f4375072135 in PMPI_Recv () from /usr/lib/libmpi.so.40\n"
    "#4  0x000055eb302d1dc7 in main (argc=1, argv=0x7ffe) at wave.c:49\n"
)
HELPER = """\
#0  0x00007f185c93df36 in epoll_wait () from /lib/libc.so.6
#1  0x00007f185c54b225 in event_base_loop () from /usr/lib/libevent_core-2.1.so.7
"""


def threads(main: str, pid: int) -> str:
    return (
        f'Thread 2 (Thread 0x7f185b9ff6c0 (LWP {pid + 5}) "wave"):\n{HELPER}\n'
        f'Thread 1 (Thread 0x7f185c4f6740 (LWP {pid}) "wave"):\n{main}'
    )


def by_mpirun(rank: int, main: str) -> str:
    block = "".join(f"\t{line}\n" for line in threads(main, 75 + rank).splitlines())
    return f"STACK TRACE FOR PROC [[19247,1],{rank}] (node1, PID {75 + rank})\n{block}\n"


def spy(pid: int, *frames: str) -> str:
    told = "".join(f"    {frame}\n" for frame in frames)
    head = f"Process {pid}: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
    return f'{head}Thread {pid} (active): "MainThread"\n{told}\n'


SPY_SUM = (
    "opal_progress (libopen-pal.so.80)",
    "PMPI_Allreduce (libmpi.so.40)",
    "Allreduce (mpi4py/MPI.so)",
    "step (train.py:8)",
)
SPY_SLEEP = (
    "clock_nanosleep (libc.so.6)",
    "time_sleep (libpython3.11.so.1.0)",
    "load (data.py:10)",
    "<module> (train.py:3)",
)


def matches(tmp_path: Path, text: str, *parsers: LogParser) -> list[FailureMatch]:
    """Return the matches of parsers in a log; a whole scan of that log must not fail either."""
    parse_all = parsers or (Stacks(), Faulthandler())
    path = tmp_path / "some.log"
    path.write_text(text)
    read_evidence(path, parsers=parse_all)
    return [match for parser in parse_all for match in parser.finish()]


def test_stacks_that_mpirun_took(tmp_path: Path) -> None:
    text = "Waiting for stack traces (this may take a few moments)...\n" + by_mpirun(0, BARRIER) + by_mpirun(1, RECV)
    (match,) = matches(tmp_path, text)
    found = match.signature
    assert (found.kind, found.key, match.priority, match.fatal) == (
        Kind.HANG,
        "stuck@Barrier+Recv",
        Priority.STUCK,
        True,
    )
    assert (found.library, found.function, found.entry_point) == ("libmpi.so.40", "PMPI_Recv", "PMPI_Recv")
    assert (found.ranks, found.hosts) == ((1,), ("node1",))
    assert "in PMPI_Recv ()" in found.primary_line
    assert text.splitlines()[found.line - 1].strip() == found.primary_line
    assert found.detail == "rank 0 waits in MPI_Barrier (wave.c:53), rank 1 waits in MPI_Recv (wave.c:49)"


def test_the_order_of_ranks_and_the_names_of_functions_do_not_change_the_key(tmp_path: Path) -> None:
    (one,) = matches(tmp_path, by_mpirun(0, BARRIER) + by_mpirun(1, RECV))
    (other,) = matches(tmp_path, by_mpirun(0, RECV.replace("PMPI_", "MPI_")) + by_mpirun(1, BARRIER))
    assert one.signature.key == other.signature.key
    assert other.signature.ranks == (0,)


def test_those_who_are_fewer_are_odd(tmp_path: Path) -> None:
    text = "".join(by_mpirun(rank, RECV if rank < 3 else BARRIER) for rank in range(4))
    (match,) = matches(tmp_path, text)
    assert match.signature.ranks == (3,)
    assert match.signature.detail == "ranks 0-2 wait in MPI_Recv (wave.c:49), rank 3 waits in MPI_Barrier (wave.c:53)"


def test_gstack_of_one_process(tmp_path: Path) -> None:
    (match,) = matches(tmp_path, threads(RECV, 4711))
    assert (match.signature.key, match.fatal) == ("stuck@Recv", False)
    assert match.signature.detail == "the process waits in MPI_Recv (wave.c:49)"


def test_two_processes_one_after_the_other(tmp_path: Path) -> None:
    (match,) = matches(tmp_path, threads(RECV, 4711) + "\n" + threads(BARRIER, 4712))
    assert match.signature.key == "stuck@Barrier+Recv"
    (match,) = matches(tmp_path, RECV + "\n" + BARRIER)
    assert match.signature.key == "stuck@Barrier+Recv"


def test_stacks_that_py_spy_took(tmp_path: Path) -> None:
    (match,) = matches(tmp_path, spy(1615, *SPY_SUM) + spy(1616, *SPY_SLEEP))
    found = match.signature
    assert (found.key, found.entry_point) == ("stuck@Allreduce+load", "PMPI_Allreduce")
    assert (
        found.detail == "process 1615 waits in MPI_Allreduce (train.py:8), process 1616 is in time.sleep (data.py:10)"
    )


def test_code_of_the_users_that_mpi_calls_is_not_waiting(tmp_path: Path) -> None:
    inside = ("pause (libc.so.6)", "hang (fault.py:80)", "MPI_op_user_call (mpi4py/MPI.so)", *SPY_SUM[1:])
    (match,) = matches(tmp_path, spy(1, *SPY_SUM) + spy(2, *inside))
    assert match.signature.key == "stuck@Allreduce+hang"
    assert "process 2 is in pause (fault.py:80), which MPI_Allreduce called" in str(match.signature.detail)


def test_the_collective_that_torch_was_asked_for(tmp_path: Path) -> None:
    frames = ("c10d::Work::wait (libtorch_cpu.so)", "all_reduce (torch/distributed/distributed_c10d.py:2501)")
    outer = ("wrapper (torch/distributed/c10d_logger.py:83)", "reduce_gradients (train.py:88)")
    (match,) = matches(tmp_path, spy(1, *frames, *outer))
    assert match.signature.detail == "process 1 waits in torch.distributed.all_reduce (train.py:88)"
    assert match.signature.key == "stuck@torch.distributed.all_reduce"


@pytest.mark.parametrize(
    "head",
    [
        "Program received signal SIGSEGV, Segmentation fault.",
        'Thread 1 "wave" received signal SIGSEGV, Segmentation fault.',
        "Program terminated with signal SIGSEGV, Segmentation fault.",
        "Program terminated with signal 11, Segmentation fault.",
    ],
)
def test_a_crash_that_gdb_saw(tmp_path: Path, head: str) -> None:
    stack = """\
#0  0x00007f11 in memcpy () from /lib/libc.so.6
#1  0x00007f12 in uct_rocm_put () from /usr/lib/libuct_rocm.so.0
#2  0x00007f13 in PMPI_Send () from /usr/lib/libmpi.so.40
"""
    (match,) = matches(tmp_path, f"{head}\n{stack}")
    found = match.signature
    assert (found.kind, found.key) == (Kind.CRASH, "SIGSEGV@libuct_rocm.so!uct_rocm_put")
    assert (found.library, found.entry_point, found.primary_line) == ("libuct_rocm.so.0", "PMPI_Send", head)


OURS = """\
hetgpu: stack: rank 0 on vm (pid 10) waits in MPI_Allreduce (a.py:8) [call=PMPI_Allreduce lib=libmpi.so.40 at=a.py:8]
hetgpu: stack: rank 1 on vm (pid 11) is in time.sleep (a.py:10) [in=train at=a.py:10 doing=time.sleep]
"""


def test_our_own_words(tmp_path: Path) -> None:
    who = "rank 0 waits in MPI_Allreduce (a.py:8), rank 1 is in time.sleep (a.py:10)"
    verdict = f"hetgpu: stuck after 4 s, nothing moved: {who}"
    (match,) = matches(tmp_path, f"{OURS}{verdict}\n")
    found = match.signature
    assert (found.kind, found.key, match.priority, match.fatal) == (
        Kind.HANG,
        "stuck@Allreduce+train",
        Priority.STUCK,
        True,
    )
    assert (found.primary_line, found.line, found.ranks, found.entry_point) == (verdict, 3, (1,), "PMPI_Allreduce")
    (match,) = matches(tmp_path, f"{OURS}{verdict.replace('stuck', 'slow').replace('nothing', 'rank 1')}\n")
    assert (match.signature.kind, match.signature.key) == (Kind.TIMEOUT, "slow")
    assert match.priority is Priority.LIMIT


def test_faulthandlers_own_time(tmp_path: Path) -> None:
    text = """\
Timeout (0:00:05)!
Thread 0x00007f11 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/threading.py", line 982 in _bootstrap

Thread 0x00007f12 (most recent call first):
  File "/home/me/train.py", line 40 in exchange
  File "/home/me/train.py", line 80 in <module>
"""
    (match,) = matches(tmp_path, text)
    assert (match.signature.kind, match.signature.key, match.fatal) == (Kind.HANG, "stuck@exchange", False)
    assert match.signature.primary_line == 'File "/home/me/train.py", line 40 in exchange'


@pytest.mark.parametrize(
    "text",
    [
        "worker 3 (idle)\n",
        "Thread 1 (Thread 0x7f (LWP 75)):\n#0  0x00007f11 in ?? ()\n",
        'Fatal Python error: Aborted\n\nThread 0x0007 (most recent call first):\n  File "a.py", line 4 in train\n',
        "Program received signal SIGUSR1, User defined signal 1.\n",
        "    #0 0x7f11 in malloc (libasan.so.8)\n",
        "Timeout (0:00:05)!\nnothing follows\n",
        "raised from f at socket.cpp:1 (most recent call first):\nframe #0: c10::Error() + 0x96 (0x7f in a.so)\n",
        OURS,
    ],
)
def test_what_says_nothing(tmp_path: Path, text: str) -> None:
    assert matches(tmp_path, text) == []


WORDS = st.text(st.sampled_from("PMPI_Recv() #0x71[]=:/\\<>\t\0é\u2028"), max_size=40)


@given(WORDS, WORDS, WORDS, st.sampled_from(["", "stopped", "ended", "absent", "unseen"]))
def test_facts_are_read_as_they_were_written(call: str, place: str, function: str, state: str) -> None:
    said = facts(Position(call=call, entry=call, place=place, function=function, state=state, moved=True))
    assert "[" not in said
    assert "\n" not in said
    again = parse_facts(Position(), said)
    assert facts(again) == said
    assert (again.state, again.moved) == (state, True)


ODD = (
    "Timeout (0:00:01)!",
    "hetgpu: stuck after 1 s, x: y",
    "Program received signal SIGSEGV, x.",
    "#0  0x1 in a () from b",
)
LINES = st.sampled_from("\n".join((*ODD, "TID 5:", OURS, by_mpirun(0, RECV), spy(1, *SPY_SUM))).splitlines())


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.one_of(LINES, st.text(max_size=80)), max_size=40))
def test_no_text_makes_a_dialect_raise(lines: list[str]) -> None:
    for parser in (Stacks(), Faulthandler()):
        for number, line in enumerate(lines, 1):
            parser.feed(parse_line(line, number))
        for match in parser.finish():
            assert "\n" not in match.signature.key


def test_who_never_came_is_odd() -> None:
    waiting = [Position(rank=rank, call="MPI_Barrier", entry="PMPI_Barrier") for rank in (0, 1)]
    told = summarize([*waiting, Position(rank=2, state="ended"), Position(rank=3, state="absent")])
    assert told.sentence == "ranks 0, 1 wait in MPI_Barrier, rank 2 has ended, rank 3 was not found"
    assert (told.key, [one.rank for one in told.odd]) == ("stuck@Barrier+absent+ended", [2, 3])
    assert told.apart


def test_all_in_one_place_are_not_apart() -> None:
    told = summarize([Position(rank=rank, call="MPI_Barrier") for rank in range(3)])
    assert (told.key, told.odd, told.apart) == ("stuck@Barrier", (), False)


@pytest.mark.parametrize(
    ("printed", "word"),
    [
        ("PMPI_Allreduce", "Allreduce"),
        ("MPI_Allreduce", "Allreduce"),
        ("PMPI_Allreduce_c", "Allreduce"),
        ("ompi_mpi_finalize", "Finalize"),
        ("ncclAllReduce", "ncclAllReduce"),
        ("cudaStreamSynchronize", "cudaStreamSynchronize"),
    ],
)
def test_a_call_has_one_name_in_keys(printed: str, word: str) -> None:
    assert position_of([StackFrame("poll", "libc.so.6"), StackFrame(printed, "lib.so")]).word == word


USERS_ONLY = {
    "py-spy": spy(7, "exchange (/home/me/train.py:40)", "<module> (/home/me/train.py:80)"),
    "gdb": "[New LWP 78]\nThread 1 (Thread 0x7f (LWP 75)):\n#0  exchange (n=3) at wave.c:9\n#1  main () at wave.c:3\n",
    "gdb-bt": "#0  0x00007f11 in exchange (n=3) at wave.c:9\n#1  0x00007f12 in main () at wave.c:3\n",
    "faulthandler": 'Thread 0x00007f12 (most recent call first):\n  File "/home/me/train.py", line 40 in exchange\n',
}


@pytest.mark.parametrize("text", USERS_ONLY.values(), ids=USERS_ONLY)
def test_frames_of_the_user_alone_are_evidence_of_a_hang(tmp_path: Path, text: str) -> None:
    (match,) = matches(tmp_path, text)
    assert (match.signature.kind, match.signature.key) == (Kind.HANG, "stuck@exchange")
    assert (match.priority, match.fatal) == (Priority.LIMIT, False)


@pytest.mark.parametrize("text", USERS_ONLY.values(), ids=USERS_ONLY)
def test_another_end_precedes_frames_of_the_user_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "some.log"
    path.write_text(
        f"{text}slurmstepd: error: *** JOB 7 ON node1 CANCELLED AT 2024-05-01T10:00:00 DUE TO TIME LIMIT ***\n"
    )
    assert [one.kind for one in read_evidence(path).signatures] == [Kind.TIMEOUT]
    path.write_text(text)
    assert [one.key for one in read_evidence(path).signatures] == ["stuck@exchange"]
