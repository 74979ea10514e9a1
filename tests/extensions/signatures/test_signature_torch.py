"""torch.distributed, Gloo, ProcessGroupNCCL and torchrun: meanings of their texts, and which of them is the cause."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.records import RankExit

TRACEBACK = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 7, in main\n    step()\n'
ALL = ("python_errors", "torch_distributed", "torchrun")
GLOO = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/"


def heard(text: str, parsers: Sequence[str] = ALL) -> tuple[list[FailureMatch], list[RankExit]]:
    readers = [find("signatures", name, LogParser)() for name in parsers]  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        for reader in readers:
            reader.feed(parse_line(line, number))
    return [one for reader in readers for one in reader.finish()], [one for reader in readers for one in reader.exits()]


def parse_all(text: str, *parsers: str) -> list[Signature]:
    return list(by_priority(heard(text, parsers or ALL)[0]))


def raised(text: str, rank: int | None = None) -> str:
    prefix = "" if rank is None else f"[rank{rank}]: "
    return "\n".join(prefix + line for line in (TRACEBACK + text).splitlines()) + "\n"


@pytest.mark.parametrize(
    ("message", "read_as"),
    [
        (GLOO + "pair.cc:553] Connection closed by peer [127.0.0.1]:13705. This is typically caused by a remote worker crashing.", "network_failure peer-lost@gloo"),
        (GLOO + "pair.cc:537] Read error [127.0.0.1]:11447: Connection reset by peer", "network_failure peer-lost@gloo"),
        (GLOO + "pair.cc:341] writev [127.0.0.1]:11447: Broken pipe", "network_failure peer-lost@gloo"),
        (GLOO + "pair.cc:537] Read error [10.0.0.2]:11447: No route to host", "network_failure io@gloo"),
        (GLOO + "pair.h:311] Connect timeout [10.0.0.2]:99", "network_failure connect@gloo"),
        (GLOO + "pair.cc:152] timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:245", "network_failure connect@gloo"),
        ("Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error", "network_failure connect@gloo"),
        (GLOO + "unbound_buffer.cc:78] Timed out waiting 8000ms for send operation to complete", "timeout timeout@gloo"),
        (GLOO + "buffer.cc:72] Read timeout [10.0.0.2]:99", "timeout timeout@gloo"),
        ("Application timeout caused pair closure", "timeout timeout@gloo"),
        ("[enforce fail at /g/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 1000 vs 12. ", "error size-mismatch@gloo"),
        ("[enforce fail at /g/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: nosuch0", "transport_unavailable no-interface@gloo"),
        ("[enforce fail at /g/gloo/transport/tcp/loop.cc:104] fd_ != -1. -1 vs -1. epoll_create: Too many", "error enforce@loop.cc"),
        ("[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 5000 ms", "timeout timeout@monitored_barrier"),
        ("Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0.", "network_failure peer-lost@gloo"),
        ("Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(", "error collective-mismatch@c10d"),
        ("Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters", "error unused-parameters@ddp"),
        ("Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your training graph has changed in this iteration", "error graph-changed@ddp"),
        ("DDP expects same model across all ranks, but Rank 1 has 4 params, while rank 0 has inconsistent 2 params.", "error model-mismatch@ddp"),
        ("[1]: params[0] in this process with sizes [5, 4] appears not to match sizes of the same param in process 0.", "error model-mismatch@ddp"),
        ("Distributed package doesn't have NCCL built in", "error not-built@NCCL"),
        ("CUDA tensor detected and the MPI used doesn't have CUDA-aware MPI support", "error not-gpu-aware@MPI"),
        ("No backend type associated with device type cpu", "error no-backend@cpu"),
        ("ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "error no-gpu@ProcessGroupNCCL"),
        ("Default process group has not been initialized, please make sure to call init_process_group.", "error no-process-group@c10d"),
        ("Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set", "error no-env@RANK"),
        ("Timed out after 7 seconds waiting for clients. 1/2 clients joined.", "timeout timeout@c10d-store"),
        ("wait timeout after 10000ms, keys: /default_pg/0//cpu//0/1", "timeout timeout@c10d-store"),
        ("The client socket has timed out after 5000ms while trying to connect to (127.0.0.1, 29603).", "network_failure connect@c10d-store"),
        ("The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).", "error address-in-use@c10d-store"),
        ("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600081 milliseconds before timing out.", "timeout timeout@ProcessGroupNCCL!ALLREDUCE"),
        ("NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, unhandled system error, NCCL version 2.4.8", "error ncclSystemError@nccl"),
        ("NCCL error in: ../x.cpp:3, remote process exited or there was a network error, NCCL version 2.18.1", "network_failure peer-lost@nccl"),
    ],
)  # fmt: skip
def test_message(message: str, read_as: str) -> None:
    first = parse_all(raised(f"RuntimeError: {message}", 0))[0]
    assert f"{first.kind.value} {first.key}" == read_as
    assert first.hosts == (("127.0.0.1",) if "to connect to (127.0.0.1, " in message else ())


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("[rank0]:[E1120 12:28:14.544723028 ProcessGroupGloo.cpp:3011] [Rank 0]: Rank 1 failed to pass monitoredBarrier in 5000 ms", "timeout timeout@monitored_barrier (1,)"),
        ("[rank1]:[E1218 20:27:21.433 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600088 milliseconds before timing out.", "timeout timeout@ProcessGroupNCCL!BROADCAST (1,)"),
        ("[E ProcessGroupNCCL.cpp:587] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLGATHER, Timeout(ms)=1800000) ran for 1800123 milliseconds before timing out.", "timeout timeout@ProcessGroupNCCL!ALLGATHER ()"),
        ("terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 80 vs 40", "crash size-mismatch@gloo ()"),
        ("[default0]:[E1120 20:31:35.8 ProcessGroupGloo.cpp:67] Gloo connectFullMesh failed with [/g/gloo/transport/tcp/pair.cc:152] timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:24500$0", "network_failure connect@gloo ()"),
        ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).", "out_of_memory no-space@dev-shm ()"),
        ("[2023-11-29 08:57:32,304] [ERROR] [launch.py:321:sigkill_handler] ['python', 'x.py'] exits with return code = -11", "crash SIGSEGV ()"),
        ("torchrun: error: unrecognized arguments: --nosuch", "launch_failure usage@torchrun ()"),
        ("W1120 20:33:42.374000 14737 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers", "crash stopped@torchrun ()"),
    ],
)  # fmt: skip
def test_line(text: str, read_as: str) -> None:
    first = parse_all(text)[0]
    assert f"{first.kind.value} {first.key} {first.ranks}" == read_as
    assert (first.library, first.function, first.hosts) == (None, None, ())


@pytest.mark.parametrize(
    "text",
    [
        "[W1120 20:32:14.9 socket.cpp:764] [c10d] The IPv6 network addresses of (node1, 29603) cannot be retrieved (gai error: -2 - Name or service not known).",
        "[W1120 20:32:14.9 socket.cpp:697] [c10d] The client socket has failed to connect to [node1]:29500 (errno: 97 - Address family not supported by protocol).",
        "[W1120 20:32:46.6 socket.cpp:469] [c10d] waitForInput: poll for socket SocketImpl(fd=14) returned 0, likely a timeout",
        "[W1120 ProcessGroupGloo.cpp:760] Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback.",
        "[rank0]:[W1120 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.",
        "[/g/gloo/transport/tcp/debug_logger.cc:9] ERROR failed to connect, willRetry=1, retry=1, retryLimit=3, rank=0, size=2, error=SO_ERROR: Connection refused",
        "W1120 20:28:39.151000 7712 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 7716 closing signal SIGTERM",
        "[2023-11-29 08:57:32,104] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 48040",
        "  host      : a program's own table\n  rank      : first",
    ],
)  # fmt: skip
def test_what_is_no_failure(text: str) -> None:
    assert parse_all(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "[E1120 20:32:05.144 socket.cpp:1028] [c10d] The client socket has timed out after 5000ms while trying to connect to (127.0.0.1, 29603).",
        "[E1120 20:31:35.8 ProcessGroupGloo.cpp:67] Gloo connectFullMesh failed with [/g/gloo/transport/tcp/pair.cc:152] no error",
    ],
)  # fmt: skip
def test_what_is_tried_again_proves_nothing(text: str) -> None:
    assert [match.fatal for match in heard(text)[0]] == [False]


AGENT = (
    raised("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ")
    + "=" * 20
    + "\ntrain.py FAILED\n"
    + "-" * 20
    + "\nFailures:\n"
)


def worker(number: int, rank: int, code: int, pid: int, *, signal: str = "", newer: bool = False) -> str:
    note = (
        f"Signal {-code} ({signal}) received by PID {pid}" if signal else "To enable traceback see: https://pytorch.org"
    )
    tail = f"  ({signal})" if newer and signal else " " if newer else ""
    return f"""[{number}]:
  time      : 2026-11-20_12:27:33
  host      : node1
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: {pid}){tail}
  error_file: <N/A>
  traceback : {note}
"""


def table(root: str, *others: str) -> str:
    """Return the report of an agent whose worker failed, after its own traceback."""
    return (
        AGENT
        + ("".join(others) or "  <NO_OTHER_FAILURES>\n")
        + "-" * 20
        + "\nRoot Cause (first observed failure):\n"
        + root
    )


PEER = raised(f"RuntimeError: {GLOO}pair.cc:553] Connection closed by peer [127.0.0.1]:4770", 0)
FAILED = "E1120 12:27:33.533000 113 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {}) local_rank: 1 (pid: {}) of binary: /opt/venv/bin/python3\n"


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize(("code", "signal"), [(-11, "SIGSEGV"), (-9, "SIGKILL"), (-6, "SIGABRT"), (-7, "SIGBUS")])
def test_a_signal_in_the_table_is_the_crash(code: int, signal: str, newer: bool) -> None:
    terminated = worker(1, 0, -15, 116, signal="SIGTERM", newer=newer)
    root = worker(0, 1, code, 117, signal=signal, newer=newer)
    first = parse_all(PEER + FAILED.format(code, 117) + table(root, terminated))[0]
    assert (first.kind.value, first.key, first.signal) == ("crash", signal, signal)
    assert first.primary_line == f"traceback : Signal {-code} ({signal}) received by PID 117"
    assert (first.ranks, first.hosts, first.library, first.function) == ((1,), ("node1",), None, None)


def test_an_exit_code_without_a_word_is_quoted() -> None:
    first = parse_all(PEER + FAILED.format(7, 162) + table(worker(0, 1, 7, 162)))[0]
    assert (first.kind.value, first.key, first.primary_line) == ("error", "exit@7", "exitcode  : 7 (pid: 162)")
    first = parse_all(PEER + "bad config\n" + table(worker(0, 1, 1, 162)))[0]
    assert (first.key, first.ranks) == ("exit@1", (1,))


def test_an_exception_tells_more_than_its_exit_code() -> None:
    assert parse_all(raised("KeyError: 'x'", 1) + PEER + table(worker(0, 1, 1, 9)))[0].key == "KeyError@train.py!main"
    assert parse_all(raised("KeyError: 'x'") + table(worker(0, 1, 1, 9)))[0].key == "KeyError@train.py!main"
    timeout = raised(f"RuntimeError: {GLOO}unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation", 0)
    assert parse_all(timeout + table(worker(0, 0, 1, 9)))[0].key == "timeout@gloo"


def test_a_network_that_broke_is_not_an_exit_code() -> None:
    assert parse_all(PEER + table(worker(0, 0, 1, 9)))[0].key == "peer-lost@gloo"


def test_an_abort_after_the_watchdog_is_its_doing() -> None:
    watchdog = "[rank0]:[E1 ProcessGroupNCCL.cpp:6] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, N) ran"
    first = parse_all(watchdog + "\n" + table(worker(0, 0, -6, 9, signal="SIGABRT")))[0]
    assert (first.kind.value, first.signal) == ("timeout", None)


def test_of_restarts_the_first_failure_counts() -> None:
    text = FAILED.format(-9, 7) + FAILED.format(1, 8) + table(worker(0, 0, 1, 8))
    first = parse_all(text)[0]
    assert (first.key, first.line) == ("SIGKILL", 1)
    again = parse_all(FAILED.format(-9, 7) + FAILED.format(-9, 8) + table(worker(0, 1, -9, 8, signal="SIGKILL")))
    assert [one.primary_line for one in again] == ["traceback : Signal 9 (SIGKILL) received by PID 8"]


def test_a_table_that_is_missing_leaves_the_agents_line() -> None:
    first = parse_all(FAILED.format(-11, 7))[0]
    assert (first.kind.value, first.signal) == ("crash", "SIGSEGV")


def test_the_oldest_table() -> None:
    text = """Root Cause:
[0]:
  time: 2021-06-20_12:27:33
  rank: 1 (local_rank: 1)
  exitcode: -11 (pid: 117)
  error_file: <N/A>
  msg: "Signal 11 (SIGSEGV) received by PID 117"
=====
Other Failures:
[1]:
  time: 2021-06-20_12:27:33
  rank: 0 (local_rank: 0)
  exitcode: -6 (pid: 116)
  error_file: <N/A>
  msg: "Signal 6 (SIGABRT) received by PID 116"
"""
    first, other = parse_all(text)
    assert (first.key, first.ranks, first.primary_line) == (
        "SIGSEGV",
        (1,),
        'msg: "Signal 11 (SIGSEGV) received by PID 117"',
    )
    assert other.key == "SIGABRT"


def test_a_worker_that_somebody_stopped_is_the_root_and_not_who_was_stopped_for_it() -> None:
    text = PEER + table(worker(0, 1, -15, 9, signal="SIGTERM"), worker(1, 0, -15, 8, signal="SIGTERM"))
    first, peer = parse_all(text)
    assert (first.kind.value, first.signal, first.ranks) == ("crash", "SIGTERM", (1,))
    assert (first.primary_line, peer.key) == ("traceback : Signal 15 (SIGTERM) received by PID 9", "peer-lost@gloo")


def test_how_ranks_ended() -> None:
    text = table(worker(0, 1, -11, 9, signal="SIGSEGV"), worker(1, 0, -15, 8, signal="SIGTERM"), worker(2, 2, 7, 10))
    assert heard(text)[1] == [RankExit(0, signal=15), RankExit(2, code=7), RankExit(1, signal=11)]


def test_a_rendezvous_that_nobody_joined_loses_against_a_real_error() -> None:
    text = raised("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError")
    assert [(one.kind.value, one.key) for one in parse_all(text)] == [("timeout", "timeout@rendezvous")]
    assert parse_all(text + raised("KeyError: 'x'"))[0].key == "KeyError@train.py!main"


def test_a_stopped_agent_is_a_limit() -> None:
    text = "W1120 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers\n"
    text += raised("torch.distributed.elastic.multiprocessing.api.SignalException: Process 207 got signal: 15")
    matches = heard(text)[0]
    assert {match.priority for match in matches} == {Priority.LIMIT}
    assert [(one.key, one.line, one.signal) for one in by_priority(matches)] == [("stopped@torchrun", 1, "SIGTERM")]


@pytest.mark.parametrize(("number", "signal"), [(15, "SIGTERM"), (2, "SIGINT"), (1, "SIGHUP")])
def test_an_agents_exception_alone_says_what_stopped_it(number: int, signal: str) -> None:
    text = raised(f"torch.distributed.elastic.multiprocessing.api.SignalException: Process 207 got signal: {number}")
    assert [(one.kind.value, one.key, one.signal) for one in parse_all(text)] == [("crash", "stopped@torchrun", signal)]


@pytest.mark.parametrize(
    ("text", "read_as", "priority"),
    [
        ("[rank: 1] Child process with PID 41 terminated with code -11. Forcefully terminating", "crash SIGSEGV (1,)", Priority.EXIT),
        ("[rank: 1] Child process with PID 41 terminated with code 1. Forcefully terminating", "error exit@1 (1,)", Priority.UNSPECIFIC),
        ("[2026-11-20 12:00:00,000] [ERROR] [launch.py:325:sigkill_handler] ['python', 'a.py'] exits with return code = -9", "crash SIGKILL ()", Priority.EXIT),
        ("[ERROR] [launch.py:325:sigkill_handler] ['python', 'a.py'] exits with return code = -15", "crash SIGTERM ()", Priority.CONSEQUENCE),
        ("[rank2]:[E1 ProcessGroupNCCL.cpp:6] [PG 0 Rank 2] Received a dump signal due to a collective timeout from  rank 0", "timeout timeout@ProcessGroupNCCL (2,)", Priority.CONSEQUENCE),
    ],
)  # fmt: skip
def test_what_others_say_of_a_worker(text: str, read_as: str, priority: Priority) -> None:
    (match,) = heard(text)[0]
    said = match.signature
    assert (f"{said.kind.value} {said.key} {said.ranks}", match.priority) == (read_as, priority)
    assert heard("launch.py exits with return code = 1\nChild process with PID 3 terminated with code 0")[0] == []


@pytest.mark.parametrize("name", ALL)
def test_hostile_lines(name: str) -> None:
    for text in (
        "\0" * 9,
        "  exitcode  : x",
        "  rank      : ",
        "what(): " + "a" * 9000,
        "] " * 3000,
        "gloo/" * 900,
        "/gloo/a:1] " * 400,
    ):
        for line in (
            text,
            f"Traceback (most recent call last): {text}",
            f"RuntimeError: {text}",
            f'  File "{text}", line 1',
        ):
            parse_all("\n".join([line] * 3), name)


WAITED = "RuntimeError: " + GLOO + "unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete"


def waiting(rank: int, call: str) -> str:
    path = "/x/site-packages/torch/distributed/distributed_c10d.py"
    text = f'{TRACEBACK}  File "{path}", line 3252, in {call}\n    work.wait()\n{WAITED}'
    return "\n".join(f"[default{rank}]:[rank{rank}]: {line}" for line in text.splitlines()) + "\n"


def test_ranks_in_different_collectives_are_an_error_of_the_program() -> None:
    first = parse_all(waiting(0, "all_reduce") + waiting(1, "barrier"))[0]
    assert (first.kind.value, first.key, first.ranks) == ("error", "collective-mismatch@c10d", (0, 1))
    assert first.detail == "different collectives: rank 0 in all_reduce, rank 1 in barrier"
    assert parse_all(waiting(0, "all_reduce") + waiting(1, "all_reduce"))[0].key == "timeout@gloo"
    # A pair of calls that belong together.
    assert parse_all(waiting(0, "send") + waiting(1, "recv"))[0].key == "timeout@gloo"


def watchdog(rank: int, call: str, number: int = 5, group: str = "ID 0 PG GUID 0(default_pg) ") -> str:
    return (
        f"[rank{rank}]:[E328 00:22:12.922468030 ProcessGroupNCCL.cpp:2057] [PG {group}Rank {rank}] Process group "
        f"watchdog thread terminated with exception: [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={number}, OpType={call}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600031 ms\n"
    )


@pytest.mark.parametrize(
    ("text", "mismatch"),
    [
        (watchdog(0, "ALLREDUCE") + watchdog(1, "BROADCAST"), True),
        (watchdog(0, "ALLREDUCE") + watchdog(1, "ALLREDUCE"), False),
        (watchdog(0, "ALLREDUCE") + watchdog(1, "BROADCAST", number=6), False),
        (watchdog(0, "ALLREDUCE") + watchdog(1, "BROADCAST", group="ID 1 PG GUID 3 "), False),
    ],
)
def test_operations_of_nccl_with_one_number_and_different_names(text: str, mismatch: bool) -> None:
    assert (parse_all(text)[0].key == "collective-mismatch@c10d") is mismatch
