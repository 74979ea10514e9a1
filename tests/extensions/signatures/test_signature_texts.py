"""Single texts, one parser at a time: the meaning of each, and texts that must not match."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.extensions.signatures.base import LogParser, Priority, process_of, slug, token
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.records import RankExit

UCX = "[1795183975.242676] [vm:5148 :0]          x.c:15 UCX  "
TRACEBACK = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 7, in main\n    step()\n'


def parse_all(parser: str, text: str) -> list[Signature]:
    reader = find("signatures", parser, LogParser)()  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        reader.feed(parse_line(line, number))
    return list(by_priority(reader.finish()))


@pytest.mark.parametrize(
    ("parser", "text", "read_as"),
    [
        ("ucx_errors", UCX + "ERROR no active messages transport to <no debug data>: tcp/lo - no route", "transport_unavailable no-transport@ucx"),
        ("ucx_errors", UCX + "ERROR   no usable transports/devices (asked rc_mlx5 on all devices)", "transport_unavailable no-device@ucx"),
        ("ucx_errors", UCX + "ERROR failed to allocate 4292720 bytes using md posix: Out of memory", "out_of_memory out-of-memory@ucx"),
        ("ucx_errors", UCX + "ERROR   Not enough memory. Please check that /dev/shm has more available memory.", "out_of_memory no-space@dev-shm"),
        ("ucx_errors", UCX + "ERROR connect(fd=28, dest_addr=127.0.0.1:50573) failed: Connection refused", "network_failure connect-failed-Connection-refused@ucx"),
        ("ucx_errors", UCX + "ERROR   connect(fd=26, dest_addr=10.0.0.2:5093) failed: No route to host", "network_failure connect-failed-No-route-to-host@ucx"),
        ("ucx_errors", UCX + "FATAL something is wrong with 0x7f00 at 17", "error something-is-wrong-with-at@ucx"),
        ("ucx", "[h:1:0:77]  tag.c:8  Assertion `a > 0' failed", "crash SIGABRT"),
        ("ucx", "[h:1:0:77]  dt.c:57   Fatal: mem type unpack failed", "crash SIGABRT"),
        ("python_errors", TRACEBACK + "AssertionError: 3 != 4", "error AssertionError@train.py!main"),
        ("python_errors", TRACEBACK + "MemoryError", "out_of_memory MemoryError@train.py!main"),
        ("python_errors", TRACEBACK + "torch.OutOfMemoryError: CUDA out of memory.", "out_of_memory OutOfMemoryError@train.py!main"),
        ("python_errors", TRACEBACK + "ImportError: libnccl.so.2: cannot open shared object file: No such file", "missing_library missing-library@libnccl.so.2"),
        ("python_errors", TRACEBACK + "ImportError: /x/_C.so: undefined symbol: ncclCommInit", "missing_library undefined-symbol@ncclCommInit"),
        ("python_errors", TRACEBACK + "RuntimeError: CUDA error: no kernel image is available for execution", "gpu_arch_mismatch no-kernel-image@gpu"),
        ("python_errors", TRACEBACK + "OSError: [Errno 28] No space left on device: '/dev/shm/x'", "out_of_memory no-space@dev-shm"),
        ("python_errors", TRACEBACK + "RuntimeError: cannot load MPI library\n/x/libmpi.so: cannot open shared object file", "missing_library missing-library@libmpi.so"),
        ("python_errors", TRACEBACK + "hello 1\nValueError: boom", "error ValueError@train.py!main"),
        ("python_errors", TRACEBACK + "MyOops: boom", "error MyOops@train.py!main"),
        ("loader", "./a: error while loading shared libraries: libx.so: invalid ELF header", "missing_library bad-library@libx.so"),
        ("loader", "./a: symbol lookup error: ./a: undefined symbol: physics_kernel_v2", "missing_library undefined-symbol@physics_kernel_v2"),
        ("loader", "a: /lib/libc.so.6: version `GLIBC_2.34' not found (required by a)", "missing_library missing-version@GLIBC_2.34"),
        ("loader", "[proxy] execvp error on file ./a (No such file or directory)", "launch_failure no-program@a"),
        ("ssh", "ssh: connect to host node9 port 22: No route to host", "launch_failure No-route-to-host@ssh"),
        ("ssh", "root@node2: Permission denied (publickey).", "launch_failure permission-denied@ssh"),
        ("openmpi_errors", "A system call failed during shared memory initialization that should\n\n  System call: mmap(2)\n  Error:       Cannot allocate memory (errno 12)\n", "out_of_memory Cannot-allocate-memory@openmpi"),
        ("openmpi_errors", "[vm][[1,1],0][a/btl_tcp_frag.c:9:mca_btl_tcp_frag_recv] mca_btl_tcp_frag_recv: readv failed: Connection timed out (110)", "network_failure Connection-timed-out@mca_btl_tcp_frag_recv"),
        ("openmpi_errors", "[vm:7] *** An error occurred in MPI_Allreduce\n[vm:7] *** MPI_ERR_OTHER: known error not in list", "error MPI_ERR_OTHER@MPI_Allreduce"),
        ("openmpi_exits", "mpirun noticed that process rank 2 with PID 0 on node n exited on signal 4 (Illegal instruction).", "crash SIGILL"),
        ("openmpi_exits", "prterun noticed that process rank 2 with PID 1 on node\nn.example.org exited on signal\n11 (Segmentation fault).", "crash SIGSEGV"),
    ],
)  # fmt: skip
def test_text(parser: str, text: str, read_as: str) -> None:
    first = parse_all(parser, text)[0]
    assert f"{first.kind.value} {first.key}" == read_as


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        ("ucx_errors", UCX + "DIAG  tcp_ep 0x5629 (state=CONNECTED): recv(29) failed: Connection reset by remote peer"),
        ("ucx_errors", UCX + "ERROR shm_unlink(/ucx_shm_posix_1) failed: No such file or directory"),
        ("ucx_errors", UCX + 'ERROR try to increase "net.core.somaxconn" on the remote node'),
        ("ucx", "heat2d: app.c:16: check_state: Assertion `n < 100' failed."),
        ("python_errors", TRACEBACK),
        ("python_errors", TRACEBACK + "hello 1\nstep: 3"),
        ("loader", "dlopen(libcuda.so.1): cannot open shared object file, ignored"),
        ("kernel_oom", "memory is fine"),
        ("openmpi_errors", "the interface cannot be selected"),
        ("openmpi_exits", "mpirun noticed that process rank"),
    ],
)  # fmt: skip
def test_text_that_is_no_failure(parser: str, text: str) -> None:
    assert parse_all(parser, text) == []


def test_different_bugs_have_different_keys() -> None:
    texts = [
        TRACEBACK + "ValueError: boom",
        TRACEBACK.replace("main", "load") + "ValueError: boom",
        TRACEBACK.replace("train.py", "eval.py") + "ValueError: boom",
        TRACEBACK + "KeyError: 'momentum'",
    ]
    assert len({parse_all("python_errors", text)[0].key for text in texts}) == len(texts)


def test_an_exceptions_numbers_are_not_in_its_key() -> None:
    keys = {parse_all("python_errors", TRACEBACK + f"ValueError: {n} of 0x{n:x}")[0].key for n in (17, 18)}
    assert keys == {"ValueError@train.py!main"}


def test_interleaved_backtraces_of_two_processes() -> None:
    caught = "[{}:{} :0:{}] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x1)"
    text = [caught.format("a", 7, 7), caught.format("b", 9, 9), "==== backtrace (tid:      7) ===="]
    text += [" 0  /l/libucs.so.0(ucs_handle_error+0x1) [0x7eefe24caac]", " 1  /l/libc.so.6(+0x1) [0x7eefe4e2520]"]
    text += ["==== backtrace (tid:      9) ====", " 0  /l/libucs.so.0(ucs_handle_error+0x1) [0x721a7d030aac]"]
    text += [" 1  /l/libb.so(g+0x1) [0x721a7d2c6520]", " 2  /l/liba.so(f+0x1) [0x7eefe640977]"]
    assert {s.key for s in parse_all("ucx", "\n".join(text))} == {"SIGSEGV@libb.so!g", "SIGSEGV@liba.so!f"}


def test_equal_process_ids_on_two_hosts_are_two_crashes() -> None:
    caught = "[{}:7 :0:7] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x1)"
    frames = ["==== backtrace (tid:      7) ====", " 0  /l/liba.so(f+0x1) [0x2]", "================================="]
    (crash,) = parse_all("ucx", "\n".join([caught.format("a"), *frames, caught.format("b"), *frames]))
    assert crash.hosts == ("a", "b")


def test_every_dialect_names_what_it_listens_for() -> None:
    for name in names("signatures"):
        parser = find("signatures", name, LogParser)  # type: ignore[type-abstract]
        assert parser.triggers, name
        assert all(trigger and b"\n" not in trigger for trigger in parser.triggers), name


@pytest.mark.parametrize(
    ("line", "process"),
    [
        ("[node1:04057] text", ("node1", 4057)),
        ("[1795177004.256225] [node1.example.org:4057 :0]  select.c:549", ("node1", 4057)),
        ("[vm:5777 :0:5777] Caught signal 11", ("vm", 5777)),
        ("[vm:23186:0]     ucp_context.c:2257", ("vm", 23186)),
        ("[vm][[1,1],0] text", None),
        ("[12:03:44] step 3", None),
        ("text", None),
    ],
)
def test_process_of_a_line(line: str, process: tuple[str, int] | None) -> None:
    assert process_of(line) == process


def test_names_and_messages_in_keys() -> None:
    assert token("./a/b/heat 3d*?") == "heat-3d"
    assert token("libmpi.so.12") == "libmpi.so.12"
    assert (
        slug("connect(fd=28, dest_addr=10.0.0.1:50573) failed: Connection refused")
        == "connect-failed-Connection-refused"
    )
    assert len(slug("word " * 1000)) <= 60


def test_a_report_without_a_thread_belongs_to_the_process() -> None:
    text = (
        "[vm:7:0] Caught signal 11 (Segmentation fault)\n==== backtrace (tid:      7) ====\n 0  /l/liba.so(f+0x1) [0x2]"
    )
    (crash,) = parse_all("ucx", text)
    assert (crash.key, crash.hosts) == ("SIGSEGV@liba.so!f", ("vm",))


def test_errors_of_ucx_are_told_once_each_with_their_host() -> None:
    first, second = parse_all(
        "ucx_errors", f"{UCX}ERROR send 1 failed\n{UCX}ERROR send 2 failed\n{UCX}ERROR recv 3 failed"
    )
    assert (first.key, first.line, first.hosts, first.detail) == ("send-failed@ucx", 1, ("vm",), "send 1 failed")
    assert (second.key, second.line) == ("recv-failed@ucx", 3)


def test_details_of_exceptions() -> None:
    said = [parse_all("python_errors", TRACEBACK + text)[0] for text in ("ValueError: boom", "MemoryError")]
    assert [signature.detail for signature in said] == ["ValueError: boom", "MemoryError"]
    assert [signature.entry_point for signature in said] == [None, None]
    third = "\n".join(f"[rank3]: {line}" for line in f"{TRACEBACK}ValueError: boom".splitlines())
    assert parse_all("python_errors", third)[0].ranks == (3,)


ABORT = "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\n  Proc: [[1,1],0]\n  Errorcode: {}\n"


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        (ABORT.format(1), Priority.EXIT),
        (ABORT.format(5), Priority.EXIT),
        (TRACEBACK + ABORT.format(1), Priority.CONSEQUENCE),
        (TRACEBACK + ABORT.format(5), Priority.EXIT),
        ("noticed that process rank 0 with PID 7 on node vm exited on signal 9 (Killed).", Priority.EXIT),
        ("noticed that process rank 0 with PID 7 on node vm exited on signal 15 (Terminated).", Priority.CONSEQUENCE),
    ],
)
def test_how_much_an_ending_explains(text: str, priority: Priority) -> None:
    reader = find("signatures", "openmpi_exits", LogParser)()  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        reader.feed(parse_line(line, number))
    (match,) = reader.finish()
    assert match.priority is priority


def test_a_ranks_first_ending_counts_and_pid_0_is_no_process() -> None:
    reader = find("signatures", "openmpi_exits", LogParser)()  # type: ignore[type-abstract]
    for number, pid in enumerate((0, 7), 1):
        reader.feed(
            parse_line(
                f"noticed that process rank 2 with PID {pid} on node vm.here exited on signal 9 (Killed).", number
            )
        )
    for number, line in enumerate(("   Process name: [prterun-vm-1@1,2]", "   Exit code:    3"), 3):
        reader.feed(parse_line(line, number))
    assert reader.exits() == (RankExit(2, signal=9),)
    assert [match.process for match in reader.finish()] == [None, ("vm", 7), None]
