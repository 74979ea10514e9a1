"""Fragments, as people paste them: logs that begin or end within a report, or are one line of it."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.explain import Explanation, explain
from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.config.known_failures.load import known_failures
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import LogParser

FRAME = '  File "/home/me/train.py", line 7, in step\n    loss.backward()\n'
INFO = "n1:12:34 [0] NCCL INFO {} -> {}"

Tell = Callable[[str], Explanation]


@pytest.fixture
def told(tmp_path: Path) -> Tell:
    def tell(text: str) -> Explanation:
        log = tmp_path / "fragment.log"
        log.write_text(text)
        return explain(log, known_failures())

    return tell


@pytest.mark.parametrize(
    ("text", "outcome", "key"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out_of_memory", "OutOfMemoryError@python"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported", "error", "IllegalAddress@gpu"),
        ("RuntimeError: HIP error: invalid device function\nFor debugging consider passing AMD_SERIALIZE_KERNEL=3", "gpu_arch_mismatch", "no-kernel-image@gpu"),
        ("ModuleNotFoundError: No module named 'torch'", "missing_library", "missing-module@torch"),
        ("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory", "missing_library", "missing-library@libcudart.so.12"),
        ("ValueError: bad shape", "error", "ValueError@python"),
        ("torch.distributed.DistStoreError: Timed out after 6 seconds waiting for workers. 1/2 workers joined.", "timeout", "timeout@c10d-store"),
        (FRAME + "ValueError: bad shape", "error", "ValueError@train.py!step"),
        ("Traceback (most recent call last):\n" + FRAME, "error", "traceback@train.py!step"),
        (FRAME + "Exception: process 1 terminated with signal SIGKILL", "crash", "SIGKILL"),
        ("[n1:123] Signal: Bus error (7)\n[n1:123] [ 0] /lib64/libc.so.6(+0x3e990)[0x7f04b5c5a990]\n[n1:123] [ 1] /lib64/libfabric.so.1(+0x60d1be)[0x7f04aefed1be]", "crash", "SIGBUS@libfabric.so"),
        ("[n1:9:0:9] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x218)\n\n/home/me/ompi/pml_ob1_recvreq.c: [ mca_pml_ob1_recv_request_progress_frag() ]\n      ...", "crash", "SIGSEGV!mca_pml_ob1_recv_request_progress_frag"),
        ("[n1:9:0:9]      cma_ep.c:81   process_vm_readv(pid=20 {0x7f,52}-->{0x7f,52}) returned -1: Bad address", "crash", "SIGABRT"),
        ("rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal seek for GPU arch : gfx1201", "gpu_arch_mismatch", "no-tensile-library@rocblas"),
        ("transport/net_socket.cc:424 NCCL WARN NET/Socket : peer 10.0.0.2<59210> message truncated : receiving 1048576 bytes instead of 65536\nand so on", "error", "message-truncated@nccl"),
    ],
)  # fmt: skip
def test_a_fragment_tells_its_failure(told: Tell, text: str, outcome: str, key: str) -> None:
    said = told(f"rank 0 of 2 starting\nstep 1 loss 0.5\n{text}\n")
    assert said.signature is not None
    assert (said.outcome.value, said.signature.key) == (outcome, key)


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: bad shape\nrank 0: trying the next one\nstep 2 loss 0.4",
        "UserError: none\nrank 0: solving",
        "ResourceWarning: unclosed file",
    ],
)
def test_an_exception_alone_that_the_program_went_on_after_is_none(told: Tell, text: str) -> None:
    assert told(f"rank 0 of 2 starting\n{text}\n").outcome.value == "unknown"
    assert told(f"rank 0 of 2 starting\n{text}\nrank 0 done, time 5.2 s\n").outcome.value == "passed"


def test_an_exception_is_told_once(told: Tell) -> None:
    said = told(f"rank 0 of 2\nTraceback (most recent call last):\n{FRAME}ValueError: bad\nValueError: bad\n")
    assert said.signature is not None
    assert [said.signature.key, *(other.key for other in said.others)] == ["ValueError@train.py!step"]


def test_a_call_that_failed_proves_what_nccl_warned_of(told: Tell) -> None:
    warning = "n1:12:34 [0] misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 10.0.0.4<56849> returned 113(No route to host) errno 115(Operation now in progress)"
    trail = INFO.format("misc/socket.cc:570", 2)
    assert told(f"{warning}\n{trail}\nrank 0 of 2: finished\n").outcome.value == "passed"
    proof = INFO.format("init.cc:1534", 2)
    assert told(f"{warning}\n{trail}\n{proof}\nrank 0 of 2 goes on\n").outcome.value == "network_failure"


def test_the_assertion_of_another_thread_is_a_report_of_its_own(told: Tell) -> None:
    said = told(
        "[n1:9:1:17]  ucp_worker.c:2786 Assertion `--worker->inprogress == 0' failed\n"
        "[n1:9:0:9]  ucp_worker.c:2781 Assertion `worker->inprogress++ == 0' failed\n"
        "==== backtrace (tid:9) ====\n"
        " 0  /u/libucs.so.0(ucs_handle_error+0x2e4) [0x7f19545f4604]\n"
        " 1  /u/libucp.so.0(ucp_worker_progress+0x98) [0x7f1954685348]\n"
    )
    assert said.signature is not None
    assert said.signature.key == "SIGABRT@libucp.so!ucp_worker_progress"
    assert [entry.id for entry in said.known] == ["ucx-two-threads"]


@pytest.mark.parametrize("said", ["sim.py: 1 ranks", "Process 0 on myhost and world size is 1"])
def test_ranks_that_are_alone_though_more_were_asked_for(told: Tell, said: str) -> None:
    assert told(f"$ mpiexec -n 2 ./sim\n{said}\nsum 1.0\n{said}\nsum 1.0\n").outcome.value == "wrong_result"
    assert told(f"$ mpiexec -n 1 ./sim\n{said}\nsum = 1.0\n").outcome.value == "passed"


NCCL = "{host}:{pid}:99 [0] NCCL INFO comm 0x5e4b rank {rank} nRanks {size} nNodes 1 localRanks 1 localRank 0 MNNVL 0\n"
TABLE = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 24.7\n"


def test_communicators_of_one_rank_on_several_hosts_are_a_wrong_world(told: Tell) -> None:
    alone = [NCCL.format(host=f"n{host}", pid=7, rank=0, size=1) for host in (1, 2)]
    said = told("".join(alone) + TABLE)
    assert said.signature is not None
    assert (said.outcome.value, said.signature.key) == ("wrong_result", "world-of-one@nccl")
    assert said.signature.hosts == ("n1", "n2")
    assert told(alone[0] + TABLE).outcome.value == "passed"
    joined = "".join(NCCL.format(host=f"n{rank + 1}", pid=7, rank=rank, size=2) for rank in (0, 1))
    assert told(joined + TABLE).outcome.value == "passed"


@pytest.mark.parametrize("verdict", ["FAILED validation.", "This run FAILED (difference 0.1)", "Validation: FAILED"])
def test_a_verdict_of_the_program_itself(told: Tell, verdict: str) -> None:
    assert told(f"rank 0 of 2\ntime step 9\n{verdict}\nTotal time: 3.0 s\n").outcome.value == "wrong_result"


def test_a_message_behind_a_progress_bar(told: Tell) -> None:
    said = told("rank 0 of 2\n  0%|          | 0/1 [00:00<?, ?it/s]run.sh: line 23: 2758 Bus error   python t.py\n")
    assert said.signature is not None
    assert (said.outcome.value, said.signature.signal) == ("crash", "SIGBUS")


def test_a_status_alone_is_a_status(told: Tell) -> None:
    said = told('$ timeout 6 mpirun -np 2 ./sim; echo "exit $?"\nrank 0 of 2\nexit 124\n')
    assert said.signature is not None
    assert (said.outcome.value, said.signature.primary_line) == ("timeout", "exit 124")


@pytest.mark.parametrize(
    "parser", ["program", "containers", "glibc", "torch_distributed", "benchmarks", "python_errors"]
)
@pytest.mark.parametrize("filler", [" ", "a ", "x", "1 ", "(", "/a", ": "])
def test_no_line_is_long_enough_to_stall(parser: str, filler: str) -> None:
    """Feed lines that take over a second if parts of a pattern can match the same text in many ways."""
    reader = find("signatures", parser, LogParser)()  # type: ignore[type-abstract]
    triggers = [trigger.decode() for trigger in reader.triggers][:40]
    started = time.process_time()
    for trigger in triggers:
        for text in (f"{trigger}{filler * 500}z", f"{filler * 500}{trigger}", f"{trigger} x{filler * 120}y"):
            reader.feed(parse_line(text, 1))
    assert time.process_time() - started < 5


def test_ranks_that_horovod_waits_for_at_the_end(told: Tell) -> None:
    stall = (
        "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are "
        "waiting for remainder of ranks for more than 60 seconds.\nStalled ops:\nHorovodAllreduce_x_0 [missing ranks: 3]\n"
    )
    said = told(f"rank 0 of 4\n{stall}")
    assert said.signature is not None
    assert (said.outcome.value, said.signature.key, said.signature.ranks) == ("hang", "stalled@horovod", (3,))
    assert told(f"rank 0 of 4\n{stall}epoch 2 loss 0.5\ndone\n").outcome.value == "passed"
