"""Results that failed their check, and worlds that are not the ones asked for."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser
from pytest_hetgpu.extensions.signatures.engine.order import by_priority

ROW = "     1048576        262144     float     sum      -1    32.32   32.44   60.83      {}    31.90   32.87   61.63      {}"


def matches(parser: str, text: str) -> Sequence[FailureMatch]:
    reader = find("signatures", parser, LogParser)()  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        if any(trigger.decode() in line for trigger in reader.triggers):
            reader.feed(parse_line(line, number))
    return reader.finish()


@pytest.mark.parametrize(
    ("line", "means"),
    [
        ("DATA VALIDATION ERROR: ./osu_allreduce exited with status 1 on message size 4.", "wrong_result validation@osu_allreduce CAUSE"),
        ("4                     168.88              Fail", "wrong_result validation@osu RELAYED"),
        ("# Out of bounds values : 3 FAILED", "wrong_result out-of-bounds@nccl-tests CAUSE"),
        (" Out of bounds values : 12 FAILED".strip(), "wrong_result out-of-bounds@nccl-tests CAUSE"),
        ("# Avg bus bandwidth    : 1.2 FAILED", "slow bandwidth@nccl-tests CAUSE"),
        (ROW.format("3", "0"), "wrong_result out-of-bounds@nccl-tests RELAYED"),
        (ROW.format("0", "1e+06"), "wrong_result out-of-bounds@nccl-tests RELAYED"),
        ("3: Error in received data,size = 128,sample #4", "wrong_result check@imb CAUSE"),
        ("VALIDATION: FAILED (server) - 12 error(s), first at QP 0, Chunk 1, Offset 2 (expected 0x01, got 0x02)", "wrong_result validation@perftest CAUSE"),
        (" Failed status 12: wr_id 0 syndrom 0x81", "network_failure completion-12@perftest CAUSE"),
        ("Couldn't connect to node2:18515", "network_failure connect@perftest RELAYED"),
        ("Failed Validation on array a[], AvgRelAbsErr > epsilon (1.000000e-13)", "wrong_result validation@stream CAUSE"),
        ("||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=  123.4567890 ...... FAILED", "wrong_result residual@hpl CAUSE"),
        (" Verification    =             UNSUCCESSFUL", "wrong_result verification@npb CAUSE"),
        ("allreduce verification: 6 wrong elements -> FAILED", "wrong_result verification@program CAUSE"),
        ("Verification FAILED", "wrong_result verification@program CAUSE"),
        ("FAILED validation of the gathered array", "wrong_result verification@program CAUSE"),
        ("checksum mismatch on rank 2", "wrong_result verification@program CAUSE"),
        ("rank 0: 10 bad elements", "wrong_result verification@program CAUSE"),
        ("[rank 1] results differ", "wrong_result verification@program CAUSE"),
        ("WRONG RESULT!", "wrong_result verification@program CAUSE"),
        ("[node3] rank 2: MISMATCH at 17: got 54.5 expected 54", "wrong_result verification@program RELAYED"),
        ("element 3: expected 4.0, got 3.5", "wrong_result verification@program RELAYED"),
        ("RESULT: INCORRECT", "wrong_result verification@program CAUSE"),
        ("Result = FAIL", "wrong_result verification@program CAUSE"),
        ("the answer is wrong", "wrong_result verification@program CAUSE"),
        ("INVALID RESULT", "wrong_result verification@program CAUSE"),
        ("Test NOT PASSED", "wrong_result verification@program CAUSE"),
        ("checksum does not match the reference", "wrong_result verification@program CAUSE"),
        ("The solutions on the two ranks do not agree", "wrong_result verification@program CAUSE"),
        ("checked 1000 elements: 6 differ from 2", "wrong_result verification@program CAUSE"),
        ("check: 1 element differs", "wrong_result verification@program CAUSE"),
        ("3 elements differ", "wrong_result verification@program CAUSE"),
        ("heat budget check: residual   1.0   NOT CONSERVED", "wrong_result verification@program CAUSE"),
        ("regression: value out of tolerance", "wrong_result verification@program CAUSE"),
        ("replicas diverged: checksum per rank [0.0, 1.0]", "wrong_result verification@program CAUSE"),
        ("MD5 of merged.bam differs from the manifest (expected 5f1c, found 90aa)", "wrong_result verification@program CAUSE"),
        ("Number of mismatches: 12", "wrong_result verification@program CAUSE"),
        ("rank 1: all_reduce gave 3.5, expected 3.0: MISMATCH", "wrong_result verification@program RELAYED"),
        ("sum: got 7 (expected 8)", "wrong_result verification@program RELAYED"),
        ("expected 8 but got 7", "wrong_result verification@program RELAYED"),
        ("computed 7.5, should be 8.5", "wrong_result verification@program RELAYED"),
        ("norm = nan, expected 1.0: wrong", "wrong_result verification@program RELAYED"),
        ("allreduce on 2 ranks: WRONG", "wrong_result verification@program RELAYED"),
    ],
)  # fmt: skip
def test_results_that_failed_their_check(line: str, means: str) -> None:
    (match,) = matches("benchmarks", line)
    assert f"{match.signature.kind.value} {match.signature.key} {match.priority.name}" == means


@pytest.mark.parametrize(
    "line",
    [
        "4                     168.88              Pass",
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 123.4",
        ROW.format("0", "0"),
        ROW.format("N/A", "N/A"),
        "     1048576        262144     float     sum      -1    32.32   32.44   60.83    N/A    31.90   32.87",
        "rank 0: 0 bad elements",
        "allreduce verification: 0 wrong elements -> PASSED",
        "allreduce verification: no failures",
        "Verification: failed = 0",
        "Verification Successful",
        " Verification    =               SUCCESSFUL",
        "Solution Validates: avg error less than 1.000000e-13 on all three arrays",
        "              0 tests completed and failed residual checks,",
        "Host key verification failed.",
        "SSL: CERTIFICATE_VERIFY_FAILED certificate verification failed",
        "Read -1, expected 33554432, errno = 1",
        "ValueError: expected 2.0, got 3.0",
        "rank 0: all_reduce gave 3.0, expected 3.0: OK",
        "sum: got 8, expected 8",
        "norm: got 1.00000001, expected 1.0",
        "residual = 3e-8 after 14 iterations, expected < 1e-06",
        "threads = 4, expected 8",
        "checked 1000 elements per rank: 0 differ from 1",
        "mismatches: 0",
        "all values within tolerance (0 errors)",
        "residual is within tolerance",
        "the solver diverged",
        "rank 1: checksum of block 7 differs, aborting",
        "no differences found",
        "RESULT: CORRECT",
        "Result = PASS",
        "result: 3 tests PASSED",
        "invalid result type",
        "expected time 3.0 s",
        "the file versions do not match",
        "validation loss 0.31, wrong predictions 12 %",
        "Verification failed: (n > 0) is false:",
        "  --validation   exit with an error if the validation failed",
        "[1795.1] [n:1 :0] x.c:1 UCX  DEBUG checksum mismatch",
    ],
)
def test_checks_that_passed_or_were_of_something_else(line: str) -> None:
    assert matches("benchmarks", line) == ()


def test_the_verdict_is_quoted_with_all_ranks() -> None:
    log = "\n".join(
        (
            "[node3] rank 2: MISMATCH at 17: got 54.5 expected 54",
            "[node1] rank 0: MISMATCH at 17: got 54.5 expected 54",
            "allreduce verification: 2 wrong elements -> FAILED",
        )
    )
    (signature,) = by_priority(matches("benchmarks", log))
    assert (signature.line, signature.ranks, signature.hosts) == (3, (0, 2), ("node3", "node1"))


@pytest.mark.parametrize(
    "log",
    [
        "[node1] rank 0 of 1: starting\n[node2] rank 0 of 1: starting",
        "Hello, World! I am process 0 of 1 on node1.\nHello, World! I am process 0 of 1 on node2.",
        "Hello world from processor a, rank 0 out of 1 processors\nHello world from processor a, rank 0 out of 1 processors",
        "Rank 0 size 1 device cuda:0\nRank 0 size 1 device cuda:1",
        "[rank 0/1] init_process_group backend=mpi\n[rank 0/1] init_process_group backend=mpi",
        "rank=0, size=1\nrank=0, size=1",
        "$ mpirun -np 4 ./a.out\nrank 0 of 1",
        "$ mpirun -np 1 -H a ./a.out : -np 1 -H b ./a.out\nrank 0 of 1",
        "$ srun --ntasks=8 ./a.out\nrank 0 of 1",
        "$ torchrun --nproc_per_node=2 a.py\nRank 0 of 1",
    ],
)
def test_worlds_of_one(log: str) -> None:
    (match,) = matches("world_size", log)
    signature = match.signature
    assert (signature.kind.value, signature.key) == ("wrong_result", "world-of-one@mpi")
    assert "0" in signature.primary_line
    assert match.fatal


def test_worlds_of_one_name_their_hosts() -> None:
    (match,) = matches("world_size", "[node1] rank 0 of 1: starting\n[node2] rank 0 of 1: starting")
    assert match.signature.hosts == ("node1", "node2")
    (match,) = matches("world_size", "process 0 of 1 on node1.\nprocess 0 of 1 on node2.")
    assert match.signature.hosts == ("node1", "node2")


@pytest.mark.parametrize(
    "log",
    [
        "rank 0 of 1: starting",
        "$ mpirun -np 1 ./a.out\nrank 0 of 1: starting\nrank 0 of 1: starting",
        "rank 0 of 1: starting\nrank 0 of 1: done",
        "rank 0 of 2\nrank 1 of 2\nrank 0 of 1 in its row\nrank 0 of 1 in its row",
        "rank 0 of 16\nrank 10 of 16",
        "local rank 0 of 1\nlocal rank 0 of 1",
        "$ mpirun -np 4 ./a.out\nrank 0 of 4",
        "$ mpirun -np 4 ./a.out",
        "0/1 nodes are available\n0/1 nodes are available",
        "step 0 of 1\nstep 0 of 1",
    ],
)
def test_worlds_that_are_as_they_should_be(log: str) -> None:
    assert matches("world_size", log) == ()


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        ("heat2d: wanted 4 ranks, the world has 2", "4 ranks wanted, 2 there"),
        ("expected 4 processes but got 2", "4 ranks wanted, 2 there"),
        ("This program requires exactly 4 MPI ranks but only 2 were started", "4 ranks wanted, 2 there"),
        ("must be run with four tasks, not 3", "4 ranks wanted, 3 there"),
        ("needs at least 4 ranks, got 2", "4 ranks wanted, 2 there"),
        ("expected world size 4, got 2", "4 ranks wanted, 2 there"),
        ("running on 2 ranks, expected 4", "4 ranks wanted, 2 there"),
        ("world size is 2 but 4 expected", "4 ranks wanted, 2 there"),
        ("number of processes (2) must be 4", "4 ranks wanted, 2 there"),
        ("ERROR: nprocs = 2, expected 4", "4 ranks wanted, 2 there"),
    ],
)
def test_worlds_of_another_size(line: str, detail: str) -> None:
    (match,) = matches("world_size", line)
    signature = match.signature
    assert (signature.kind.value, signature.key, match.fatal) == ("wrong_result", "world-size@program", True)
    assert signature.detail == detail


@pytest.mark.parametrize(
    "line",
    [
        "Number of ranks must match the decomposition, expected 32 ranks",
        "expected 4 ranks, got 4",
        "needs at least 2 ranks, got 4",
        "expected 4 ranks on 2 nodes",
        "requested 4 tasks, 2 nodes",
        "srun: error: Requested 4 tasks but only 2 are available",
        "each rank needs 4 GB",
        "running on 4 ranks with 2 threads required",
        "4 processes, 2 expected errors?",
        "expected 3 columns but got 2",
        "[n1:77] expected 4 processes but got 2",
    ],
)
def test_worlds_of_the_right_size(line: str) -> None:
    assert matches("world_size", line) == ()
