"""Python's tracebacks: their ranks, the one that counts in a chain, and the meanings of exceptions."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.verdict import Kind
from tests.extensions.signatures.parsing import parse_all as across

TRACEBACK = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 7, in main\n    step()\n'


MPI = TRACEBACK + '  File "src/mpi4py/MPI.src/Comm.pyx", line 440, in mpi4py.MPI.Comm.Recv\n'


C10D = (
    '  File "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9, in {}\n    work.wait()\n'
)


AGENT = (
    '  File "/v/lib/python3.11/site-packages/torch/distributed/elastic/agent/server/api.py", line 7, in run\n    x()\n'
)


CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"


HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"


def matches(text: str) -> list[FailureMatch]:
    reader = find("signatures", "python_errors", LogParser)()  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        reader.feed(parse_line(line, number))
    return list(reader.finish())


def parse_all(text: str) -> list[Signature]:
    return list(by_priority(matches(text)))


def of_rank(rank: int, text: str) -> str:
    return "\n".join(f"[rank{rank}]: {line}" for line in text.splitlines()) + "\n"


@pytest.mark.parametrize(
    ("exception", "read_as"),
    [
        ("OSError: [Errno 28] No space left on device: '/dev/shm/x'", "out_of_memory no-space@dev-shm"),
        ("OSError: [Errno 28] No space left on device: '/scratch/x'", "error no-space@disk"),
        ("OSError: [Errno 12] Cannot allocate memory", "out_of_memory MemoryError@train.py!main"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7 TiB for an array", "out_of_memory _ArrayMemoryError@train.py!main"),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes. Error code 12 (Cannot allocate memory)", "out_of_memory MemoryError@train.py!main"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "out_of_memory OutOfMemoryError@train.py!main"),
        ("torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.", "out_of_memory OutOfMemoryError@train.py!main"),
        ("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", "out_of_memory OutOfMemoryError@train.py!main"),
        ("RuntimeError: CUDA error: out of memory", "out_of_memory OutOfMemoryError@train.py!main"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "out_of_memory OutOfMemoryError@train.py!main"),
        ("RuntimeError: unable to write to file </torch_17_1_0>: No space left on device (28)", "out_of_memory no-space@dev-shm"),
        ("RuntimeError: HIP error: invalid device function", "gpu_arch_mismatch no-kernel-image@gpu"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "error IllegalAddress@gpu"),
        ("RuntimeError: Found no NVIDIA driver on your system. Please check", "error no-driver@gpu"),
        ("RuntimeError: No HIP GPUs are available", "error NoDevice@gpu"),
        ("AssertionError: Torch not compiled with CUDA enabled", "error not-built@CUDA"),
        ("ImportError: cannot import name 'Foo' from 'bar' (/x/bar.py)", "error ImportError@train.py!main"),
        ("ImportError: /l/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by /x/_C.so)", "missing_library missing-version@GLIBCXX_3.4.29"),
        ("ModuleNotFoundError: No module named 'mpi4py'", "missing_library missing-module@mpi4py"),
        ("OSError: /x/libfoo.so.1: invalid ELF header", "missing_library bad-library@libfoo.so.1"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "network_failure ConnectionRefusedError@train.py!main"),
        ("socket.gaierror: [Errno -2] Name or service not known", "network_failure gaierror@train.py!main"),
        ("subprocess.CalledProcessError: Command '['a']' died with <Signals.SIGSEGV: 11>.", "crash SIGSEGV"),
        ("subprocess.CalledProcessError: Command '['a']' returned non-zero exit status 3.", "error exit@3"),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL", "crash SIGKILL"),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 4", "error exit@4"),
        ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed. ", "crash SIGKILL@DataLoader"),
        ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Segmentation fault. ", "crash SIGSEGV@DataLoader"),
        ("RuntimeError: DataLoader worker (pid(s) 9, 10) exited unexpectedly", "error exit@DataLoader"),
        ("MyOops: boom", "error MyOops@train.py!main"),
        ("_queue.Empty", "error Empty@train.py!main"),
        ("urllib.error.URLError: <urlopen error [Errno 111] Connection refused>", "network_failure URLError@train.py!main"),
        ("AssertionError: \nNot equal to tolerance rtol=1e-06, atol=0", "wrong_result AssertionError@train.py!main"),
        ("AssertionError: Tensor-likes are not close!", "wrong_result AssertionError@train.py!main"),
        ("AssertionError: no ranks", "error AssertionError@train.py!main"),
    ],
)  # fmt: skip
def test_exception(exception: str, read_as: str) -> None:
    first = parse_all(TRACEBACK + exception)[0]
    assert f"{first.kind.value} {first.key}" == read_as
    assert first.primary_line == exception.splitlines()[0].strip()
    assert (first.library, first.function) == (None, None)


@pytest.mark.parametrize(
    ("message", "key"),
    [
        ("MPI_ERR_TRUNCATE: message truncated", "MPI_ERR_TRUNCATE@MPI_Recv"),
        ("Message truncated, error stack:", "MPI_ERR_TRUNCATE@MPI_Recv"),
        ("Invalid rank, error stack:", "MPI_ERR_RANK@MPI_Recv"),
        ("Other MPI error, error stack:", "MPI_ERR_OTHER@MPI_Recv"),
    ],
)
def test_one_mpi_error_has_one_key_whatever_mpi_names_it(message: str, key: str) -> None:
    (read,) = parse_all(f"{MPI}mpi4py.MPI.Exception: {message}\ninternal_Recv(127): MPI_Recv(buf=0x1) failed")
    assert (read.key, read.entry_point) == (key, "Comm.Recv")


def test_a_bus_error_of_a_worker_is_a_full_shm() -> None:
    (read,) = parse_all(
        TRACEBACK + "RuntimeError: DataLoader worker (pid 192) is killed by signal: Bus error. It is possible"
    )
    assert (read.kind.value, read.key, read.signal) == ("out_of_memory", "no-space@dev-shm", "SIGBUS")


@pytest.mark.parametrize(
    ("first", "link", "second", "answer"),
    [
        ("KeyError: 'x'", CAUSED, "ConfigError: option x is missing", "ConfigError"),
        ("KeyError: 'x'", CAUSED, "PoolError: KeyError: 'x' raised:", "KeyError"),
        ("KeyError: 'x'", CAUSED, "LoadError: Failed to load (look up to see its traceback)", "KeyError"),
        ("KeyError: 'x'", CAUSED, "LoadError: failed. See the inner exception for more.", "KeyError"),
        ("KeyError: 'x'", CAUSED, "LoadError: 'x'", "KeyError"),
        ("KeyError: 'x'", HANDLING, "LoadError", "KeyError"),
        ("OSError: libfoo.so.1: cannot open shared object file", CAUSED, "RuntimeError: no backend", "missing-library"),
        ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed. ", CAUSED, "RuntimeError: DataLoader worker (pid(s) 9) exited unexpectedly", "SIGKILL"),
        ("KeyError: 'x'", HANDLING, "ValueError: no such option", "ValueError"),
        ("ModuleNotFoundError: No module named 'yaml'", HANDLING, "RuntimeError: install it", "missing-module"),
        ("KeyboardInterrupt", HANDLING, "ValueError: half done", "KeyboardInterrupt"),
        ("asyncio.exceptions.CancelledError", CAUSED, "TimeoutError", "TimeoutError"),
        ("KeyError: 'x'", HANDLING, "torch.OutOfMemoryError: CUDA out of memory.", "OutOfMemoryError"),
        ("RuntimeError: [/g/gloo/transport/tcp/pair.cc:5] Connection closed by peer [::1]:7", CAUSED, "MyError: failed", "peer-lost"),
        ("torch.distributed.DistNetworkError: The client socket has timed out after 15000ms", CAUSED, "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.", "connect"),
    ],
)  # fmt: skip
def test_which_of_a_chain_is_the_answer(first: str, link: str, second: str, answer: str) -> None:
    text = TRACEBACK + first + "\n" + link + TRACEBACK + second
    assert parse_all(text)[0].key.partition("@")[0] == answer


def test_what_cleaning_up_raises_is_no_cause() -> None:
    cleaning = TRACEBACK.replace("in main", "in __exit__")
    assert parse_all(f"{TRACEBACK}KeyError: 'x'\n{HANDLING}{cleaning}ValueError: closed")[0].key.startswith("KeyError@")


def test_the_connection_to_the_store_is_quoted_as_the_agent_says_it() -> None:
    inner = "torch.distributed.DistNetworkError: The client socket has timed out after 5ms while trying to connect to (h1, 7)."
    outer = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store"
    first = parse_all(f"{TRACEBACK}{inner}\n{CAUSED}{TRACEBACK}{outer}")[0]
    assert (first.primary_line, first.hosts) == (outer, ("h1",))


def test_a_tool_that_pip_installed_is_told_by_its_own_frame() -> None:
    tool = 'Traceback (most recent call last):\n  File "/v/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
    inner = (
        '  File "/v/lib/python3.11/site-packages/torch/distributed/run.py", line 755, in main\n    raise ValueError()\n'
    )
    assert parse_all(f"{tool}{inner}ValueError: Cuda is not available.")[0].key == "ValueError@run.py!main"


@pytest.mark.parametrize(
    ("abort", "ranks"),
    [
        ("Abort(1) on node 3 (rank 3 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3", (3,)),
        ("MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD", (2,)),
        ("MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nMPI_ABORT was invoked on rank 4 in", ()),
        ("Abort(5) on node 3 (rank 3 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5) - process 3", ()),
    ],
)
def test_the_rank_that_aborted_is_the_one_that_raised(abort: str, ranks: tuple[int, ...]) -> None:
    text = f"{TRACEBACK}KeyError: 'x'\n{HANDLING}{TRACEBACK}OptionError: no x\n"
    assert parse_all(text + abort)[0].ranks == ranks
    assert parse_all(f"{text}{TRACEBACK}TypeError: y\n{abort}")[0].ranks == ()
    assert parse_all(of_rank(7, text) + abort)[0].ranks == (7,)


@pytest.mark.parametrize(
    "text",
    [
        "Exception ignored in: <function Pool.__del__ at 0x7f>\n" + TRACEBACK + "ValueError: boom",
        "--- Logging error ---\n" + TRACEBACK + "ValueError: boom",
        TRACEBACK.replace("main", "launch_agent") + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====",
        TRACEBACK + "Epoch: 5",
        "Exception raised from throwTimeoutError at ../torch/csrc/distributed/c10d/socket.cpp:1013 (most recent call first):\nframe #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f6d in /v/libc10.so)",
    ],
)  # fmt: skip
def test_what_is_no_failure(text: str) -> None:
    assert parse_all(text) == []


def test_the_interpreters_own_end() -> None:
    text = 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x0001 (most recent call first):\n  File "/x/b.py", line 3 in inner\n  File "/x/a.py", line 9 in <module>'
    (read,) = parse_all(text)
    assert (read.kind.value, read.key, read.signal, read.function) == ("crash", "SIGSEGV@b.py!inner", "SIGSEGV", None)
    assert parse_all("Fatal Python error: init_fs_encoding: failed to get the Python codec") == []


def test_the_call_into_torch_distributed_is_the_entry() -> None:
    text = (
        TRACEBACK
        + C10D.format("all_reduce")
        + "RuntimeError: [../g/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 15000ms for recv operation to complete"
    )
    assert [(read.kind.value, read.entry_point) for read in parse_all(text)] == [("timeout", "all_reduce")]


def test_a_port_in_use_is_a_launch_failure_where_the_agent_met_it() -> None:
    said = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29605, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
    read = [parse_all(head + said)[0] for head in (TRACEBACK, TRACEBACK + AGENT)]
    assert [f"{one.kind.value} {one.key}" for one in read] == [
        "error address-in-use@c10d-store",
        "launch_failure address-in-use@c10d-store",
    ]


def test_what_torchrun_meets_before_it_starts_anything_is_a_launch_failure() -> None:
    frame = '  File "/v/lib/python3.11/site-packages/torch/distributed/run.py", line 755, in {}\n    x()\n'
    text = TRACEBACK + frame.format("determine_local_world_size") + "ValueError: Cuda is not available."
    assert parse_all(text)[0].kind is Kind.LAUNCH_FAILURE
    assert parse_all(TRACEBACK + frame.format("run") + "ValueError: x")[0].kind is Kind.ERROR


def test_what_nccl_said_last_is_the_cause() -> None:
    text = of_rank(
        1,
        TRACEBACK
        + "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.21.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
    )
    (read,) = parse_all(text)
    assert "uplicate" in (read.detail or "")
    assert "uplicate" in read.key or read.key == "duplicate-gpu@nccl"


def test_consequences_weigh_little() -> None:
    weights = {
        text: matches(TRACEBACK + text)[0].priority
        for text in (
            "KeyboardInterrupt",
            "RuntimeError: [../g/gloo/transport/tcp/pair.cc:525] Read error [10.7.0.1]:22941: Connection reset by peer",
            "RuntimeError: [/g/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1. This is typically caused",
            "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1.",
            "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
        )
    }  # fmt: skip
    assert set(weights.values()) == {Priority.CONSEQUENCE}


FAULTHANDLER = """Fatal Python error: Segmentation fault

Current thread 0x00007f4062a0db80 (most recent call first):
  File "/v/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "jobs.py", line 54 in scatter
"""


NATIVE = """[n1:05090] *** Process received signal ***
[n1:05090] Signal: Segmentation fault (11)
[n1:05090] [ 0] /lib/libc.so.6(+0x3c050)[0x7f406225a050]
[n1:05090] [ 1] /v/_ctypes.cpython-311-x86_64-linux-gnu.so({}+0x8608)[0x7f4061e8d608]
[n1:05090] *** End of error message ***
"""


@pytest.mark.parametrize("python_first", [True, False])
def test_pythons_and_mpis_word_on_one_signal_are_one_crash(python_first: bool) -> None:
    native = NATIVE.format("")
    text = FAULTHANDLER + native if python_first else native + FAULTHANDLER
    (read,) = across(text, "python_errors", "openmpi_crash")
    assert read.primary_line == (FAULTHANDLER if python_first else native).splitlines()[0 if python_first else 1]
    assert (read.key, read.library) == ("SIGSEGV@jobs.py!scatter", "_ctypes.cpython-311-x86_64-linux-gnu.so")
    assert (read.function, read.hosts) == (None, ("n1",))


def test_a_native_function_says_more_than_pythons_frame() -> None:
    (read,) = across(FAULTHANDLER + NATIVE.format("string_at"), "python_errors", "openmpi_crash")
    assert (read.key, read.function) == ("SIGSEGV@_ctypes.so!string_at", "string_at")


def test_pythons_word_on_another_signal_is_another_crash() -> None:
    other = FAULTHANDLER.replace("Segmentation fault", "Bus error")
    found = [read.key for read in across(other + NATIVE.format(""), "python_errors", "openmpi_crash")]
    assert found == ["SIGBUS@jobs.py!scatter", "SIGSEGV@_ctypes.so"]
