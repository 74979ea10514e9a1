"""From what was seen of ranks to what is said of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.analysis.logs.parse import read_evidence
from pytest_hetgpu.cluster import stack_dump
from pytest_hetgpu.extensions.runtimes.base import StackDumper, TimeoutInfo
from pytest_hetgpu.extensions.signatures.engine.stacks import StackFrame, has_moved
from pytest_hetgpu.model.verdict import Kind

MPI = "/opt/mpi/lib/libmpi.so.40"
SUM = [
    ["PMPI_Allreduce", MPI, 0, MPI],
    ["train", "/home/me/train.py", 8, ""],
    ["<module>", "/home/me/train.py", 20, ""],
]
RECV = [["opal_progress", "/l/libopen-pal.so", 0, "/l/libopen-pal.so"], ["PMPI_Recv", MPI, 0, MPI], *SUM[1:]]
SLEEP = [["clock_nanosleep", "/l/libc.so.6", 0, "/l/libc.so.6"], ["load", "/home/me/data.py", 10, ""], *SUM[1:]]


def sample(frames: Sequence[Any] | None = None, **changes: Any) -> dict[str, Any]:
    seen: dict[str, Any] = {"state": "S", "cpu": 5, "io": 100, "wchan": "0", "took": 0.1}
    if frames is not None:
        seen |= {"tool": "py-spy", "threads": [{"tid": 10, "name": "", "active": True, "frames": frames}]}
    return {**seen, **changes}


def rank(number: int, *samples: Mapping[str, Any]) -> dict[str, Any]:
    return {"rank": number, "pid": 10, "name": "python", "python": True, "samples": list(samples)}


def twice(number: int, frames: Sequence[Any] | None, **changes: Any) -> dict[str, Any]:
    return rank(number, sample(frames, **changes), sample(frames, **changes))


def lines(*ranks: Mapping[str, Any], seconds: float = 60.0, quiet: float = 60.0, of: int = 0) -> list[str]:
    overdue = TimeoutInfo(seconds, quiet, lambda *_: b"")
    return stack_dump.summarize_stacks([{"host": "vm", "ranks": list(ranks)}], {}, of or len(ranks), overdue)


def test_one_line_a_rank_and_one_for_all() -> None:
    assert lines(twice(1, SLEEP), twice(0, SUM)) == [
        "hetgpu: stack: rank 0 on vm (pid 10) waits in MPI_Allreduce (train.py:8)"
        " [call=PMPI_Allreduce lib=libmpi.so.40 at=train.py:8]",
        "hetgpu: stack: rank 1 on vm (pid 10) is in time.sleep (data.py:10) [in=load at=data.py:10 doing=time.sleep]",
        "hetgpu: stuck after 60 s, nothing moved: rank 0 waits in MPI_Allreduce (train.py:8),"
        " rank 1 is in time.sleep (data.py:10)",
    ]


MOVED = rank(1, sample(SLEEP), sample(SUM))


def test_a_stopped_launcher_explains_whatever_its_ranks_do(tmp_path: Path) -> None:
    stopped = [{"pid": 4711, "name": "mpirun"}, {"pid": "?"}, 3]
    answers: list[dict[str, Any]] = [{"host": "vm", "ranks": [twice(0, SUM), MOVED]}]
    answers[0]["stopped"] = stopped
    said = stack_dump.summarize_stacks(answers, {}, 2, TimeoutInfo(60.0, 0.0, lambda *_: b""))
    halted = "mpirun on vm (pid 4711) was stopped by a signal (state T), send it SIGCONT"
    assert said[2] == f"hetgpu: stopped: {halted}"
    assert said[3].startswith(f"hetgpu: stuck after 60 s: {halted}; ranks 0, 1 wait in MPI_Allreduce (train.py:8)")
    (tmp_path / "log").write_text("".join(f"{line}\n" for line in said))
    (signature,) = read_evidence(tmp_path / "log").signatures
    assert (signature.kind, signature.key, signature.hosts) == (Kind.HANG, "stopped@mpirun", ("vm",))
    assert signature.detail is not None
    assert signature.detail.startswith(halted)


def test_a_launcher_that_is_stopped_after_its_ranks_ended(tmp_path: Path) -> None:
    answers = [{"host": "vm", "ranks": [], "stopped": [{"pid": 7, "name": "prted"}, {"pid": 3, "name": "orted"}]}]
    said = stack_dump.summarize_stacks(answers, {}, 1, TimeoutInfo(60.0, 0.0, lambda *_: b""))
    (tmp_path / "log").write_text("".join(f"{line}\n" for line in said))
    (signature,) = read_evidence(tmp_path / "log").signatures
    assert (signature.kind, signature.key) == (Kind.HANG, "stopped@orted+prted")


FLOWS = rank(1, sample(SUM), sample(SUM, io=10_000_000))
SPINS = rank(1, sample(SUM), sample([["pthread_mutex_lock", "c", 0, "c"], *SUM], cpu=90))


@pytest.mark.parametrize(
    ("other", "quiet", "begin"),
    [
        (twice(1, RECV), 60.0, "hetgpu: stuck after 60 s, nothing moved: "),
        (twice(1, RECV), 7.0, "hetgpu: stuck after 60 s, nothing moved: "),
        (twice(1, RECV), 5.0, "hetgpu: slow after 60 s, last output 5 s before: "),
        (twice(1, SUM), 31.0, "hetgpu: stuck after 60 s, nothing moved: "),
        (twice(1, SUM), 29.0, "hetgpu: slow after 60 s, last output 29 s before: "),
        (SPINS, 60.0, "hetgpu: stuck after 60 s, nothing moved: "),
        (MOVED, 60.0, "hetgpu: slow after 60 s, rank 1 moved: "),
        (FLOWS, 60.0, "hetgpu: slow after 60 s, rank 1 moved: "),
    ],
)
def test_stuck_or_slow(other: dict[str, Any], quiet: float, begin: str) -> None:
    assert lines(twice(0, SUM), other, quiet=quiet)[-1].startswith(begin)


def test_who_is_not_there(tmp_path: Path) -> None:
    said = lines(twice(0, SUM), twice(1, None, state="Z"), twice(2, SLEEP, state="T"), of=4)
    assert said[-1].endswith(
        "rank 0 waits in MPI_Allreduce (train.py:8), rank 1 has ended,"
        " rank 2 is stopped (SIGSTOP) in time.sleep (data.py:10), rank 3 was not found"
    )


def test_a_node_that_does_not_answer_leaves_its_ranks_unseen() -> None:
    answers: list[dict[str, Any]] = [{"node": "launcher", "host": "a", "ranks": [twice(0, SUM)]}, {"node": "b"}]
    said = stack_dump.summarize_stacks(answers, {}, 2, TimeoutInfo(60.0, 60.0, lambda *_: b""))
    assert "rank 1 could not be looked at" in said[-1]


def test_where_no_tool_is_the_kernel_tells() -> None:
    said = lines(
        twice(0, None, tool="proc", trouble=[], wchan="hrtimer_nanosleep"), twice(1, None, tool="proc", trouble=[])
    )
    assert said[-1].endswith("rank 0 is in sleep, rank 1 is running")
    assert said[-2] == "hetgpu: only kernel facts for ranks 0, 1: neither py-spy nor gdb is there"
    refused = twice(0, None, tool="proc", trouble=["py-spy: Error: Operation not permitted"])
    assert "kernel.yama.ptrace_scope" in lines(refused)[-1]


def test_nothing_known_gives_no_verdict() -> None:
    assert [line for line in lines(twice(0, None)) if "stuck" in line or "slow" in line] == []


def test_gdb_knows_the_native_frames_where_py_spy_lost_its_way() -> None:
    lost = [["0x7f", "/l/libc.so.6", 0, "/l/libc.so.6"], ["0x20369968", "?", 0, ""], *SUM[1:]]
    text = (
        'Thread 1 (Thread 0x7f (LWP 10) "python"):\n'
        "#0  0x00007f11 in ucp_worker_progress () from /l/libucp.so.0\n"
        f"#1  0x00007f12 in PMPI_Allreduce () from {MPI}\n"
        "#2  0x00007f13 in _PyEval_EvalFrameDefault (tstate=...) at Python/ceval.c:4769\n"
    )
    assert lines(twice(0, lost, text=text))[-1].endswith("rank 0 waits in MPI_Allreduce (train.py:8)")


def test_a_sample_with_native_frames_precedes_a_later_one_without() -> None:
    said = lines(twice(0, SLEEP), rank(1, sample(SUM), sample(SUM[1:])))
    assert "rank 1 on vm (pid 10) waits in MPI_Allreduce (train.py:8)" in said[1]
    (shallow,) = lines(rank(0, sample(SUM[1:]), sample(SUM[1:])))[:1]
    assert shallow.endswith("is in train (train.py:8) [in=train at=train.py:8 shallow]")


HOSTILE = "x]\n[rank 7\x1b[2J hetgpu: stuck after 1 s, y: z"


def test_names_of_processes_cannot_forge_lines(tmp_path: Path) -> None:
    frames = [[HOSTILE, "/home/me/" + HOSTILE, 3, ""]]
    said = lines({**twice(0, frames), "name": HOSTILE}, twice(1, SUM))
    assert len(said) == 3
    assert all(line.isprintable() for line in said)
    log = tmp_path / "some.log"
    log.write_text("".join(f"{line}\n" for line in said))
    (found,) = read_evidence(log).signatures
    assert (found.kind, found.line) == (Kind.HANG, 3)


@pytest.mark.parametrize(
    "ranks",
    [
        None,
        3,
        [3],
        [{}],
        [{"rank": "x", "pid": 1, "samples": []}],
        [{"rank": 0, "pid": 1, "samples": [[]]}],
        [{"rank": 0, "pid": 1, "samples": [{"threads": [{"tid": 1, "frames": [["a"]]}]}]}],
        [{"rank": 0, "pid": 1, "samples": [{"threads": 3}]}],
    ],
)
def test_an_answer_may_be_anything(ranks: Any) -> None:
    said = stack_dump.summarize_stacks([{"host": 3, "ranks": ranks}], {}, 1, TimeoutInfo(9.0, 9.0, lambda *_: b""))
    assert not any("stuck" in line for line in said)


def look(answer: Mapping[str, Any]) -> StackDumper:
    return lambda request, seconds: zlib.compress(json.dumps({**answer, "asked": request["hellos"]}).encode())


def test_what_was_seen_is_kept_and_said(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    output.write_text("half a line")
    others = {"node1": look({"host": "b", "ranks": [twice(1, SLEEP)]})}
    stack_dump.record(TimeoutInfo(4.0, 4.0, look({"host": "a", "ranks": [twice(0, SUM)]})), others, output, 2)
    kept = json.loads((tmp_path / "stacks.json").read_text())["nodes"]
    assert [node["node"] for node in kept] == ["launcher", "node1"]
    text = output.read_text()
    assert text.startswith("half a line\nhetgpu: stack: rank 0 on a")
    assert "rank 1 on b (pid 10) is in time.sleep" in text
    (found,) = read_evidence(output).signatures
    assert (found.key, found.ranks, found.hosts) == ("stuck@Allreduce+load", (1,), ("b",))


def test_it_never_raises(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    output.write_text("")

    def broken(*_: object) -> bytes:
        raise OSError("no more processes")

    stack_dump.record(TimeoutInfo(4.0, 4.0, broken), {"b": broken}, output, 2)
    assert output.read_text().splitlines() == [
        f"hetgpu: stack: rank {rank} could not be looked at [state=unseen]" for rank in (0, 1)
    ]
    assert "no more processes" in (tmp_path / "stacks.json").read_text()
    stack_dump.record(TimeoutInfo(4.0, 4.0, lambda *_: b"\0rubbish"), {}, output, 2)
    stack_dump.record(TimeoutInfo(4.0, 4.0, look({})), {}, tmp_path / "missing" / "output.log", 2)


def test_an_interruption_passes(tmp_path: Path) -> None:
    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt("SIGINT")

    output = tmp_path / "output.log"
    output.write_text("")
    with pytest.raises(KeyboardInterrupt):
        stack_dump.record(TimeoutInfo(4.0, 4.0, interrupted), {}, output, 2)


def test_a_look_whose_native_frames_are_broken_is_no_movement() -> None:
    python = [
        StackFrame("step", file="a.py", line=7, python=True),
        StackFrame("main", file="a.py", line=9, python=True),
    ]
    broken = [StackFrame("ucp_tag_send_nbx", library="libucp.so.0"), StackFrame("0xa7e5d0c8"), *python]
    whole = [StackFrame("opal_progress", library="libopen-pal.so.80"), StackFrame("PMPI_Allreduce"), *python]
    other = [StackFrame("PMPI_Barrier", library="libmpi.so.40"), *python]
    on = [StackFrame("PMPI_Allreduce"), StackFrame("step", file="a.py", line=8, python=True), python[1]]
    assert not has_moved(broken, whole)
    assert not has_moved(whole, whole)
    assert has_moved(whole, other)
    assert has_moved(whole, on)
