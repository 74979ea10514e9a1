"""Reports of UCX's and Open MPI's signal handlers, whole, mixed and cut, and UCX's errors in living processes."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import random

import pytest

from pytest_hetgpu.extensions.signatures.base import Priority
from tests.extensions.signatures.parsing import kind_and_key, matches, parse_all

BOTH = ("ucx", "openmpi_crash", "openmpi_exits")


CAUGHT = "[{0}:{1} :0:{1}] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x18)"


def ucx(host: str, pid: int, *frames: str, said: str = CAUGHT) -> list[str]:
    handler = (
        f"/l/libucs.so.0(ucs_handle_error+0x2bc) [0x7f{pid:04}a64c]",
        f"/l/libucs.so.0(+0x3182f) [0x7f{pid:04}a82f]",
        f"/l/libucs.so.0(+0x319fa) [0x7f{pid:04}a9fa]",
        f"/l/libc.so.6(+0x3fd70) [0x7f{pid:04}bd70]",
    )
    lines = [f"{place:2}  {frame}" for place, frame in enumerate((*handler, *frames))]
    return [said.format(host, pid), f"==== backtrace (tid:{pid:7}) ====", *lines, "=" * 33]


@pytest.mark.parametrize(
    ("line", "read_as", "detail"),
    [
        (CAUGHT.format("a", 7), "crash SIGSEGV", "address not mapped to object"),
        ("[a:7    :0:7] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))", "crash SIGSEGV", "address not mapped to object"),
        ("[a:7    :0:7] Caught signal 11 (Segmentation fault: Sent by the kernel at address (nil))", "crash SIGSEGV", "Sent by the kernel"),
        ("[a:7    :0:7] Caught signal 11 (Segmentation fault: tkill(2) or tgkill(2))", "crash SIGSEGV", "tkill(2) or tgkill(2)"),
        ("[a:7    :0:7] Caught signal 7 (Bus error: nonexistent physical address)", "crash SIGBUS", "nonexistent physical address"),
        ("[a:7    :mpi:7] Caught signal 8 (Floating point exception: integer divide by zero)", "crash SIGFPE", "integer divide by zero"),
        ("[a:7:0] Caught signal 11 (Segmentation fault)", "crash SIGSEGV", None),
        (CAUGHT.format("a", 7) + "step 3", "crash SIGSEGV", "address not mapped to object"),
        ("[a:7    :1:8]  ucp_worker.c:3027 Assertion `--worker->inprogress == 0' failed", "crash SIGABRT", "--worker->inprogress == 0"),
        ("[a:7    :1:8]  ucp_ep.c:30   Assertion `x' failed: ep 0x55 lane 3", "crash SIGABRT", "x: ep 0x55 lane 3"),
        ("[a:7    :0:7]          dt.c:57   Fatal: mem type unpack failed to uct_ep_put_short() Input/output error", "crash SIGABRT", "Fatal: mem type unpack failed to uct_ep_put_short() Input/output error"),
        ("[a:7    :0:7]    wireup.c:9    Bug: unexpected lane", "crash SIGABRT", "Bug: unexpected lane"),
        ("[a:7    :0:7]  rndv.c:57   Fatal: failed to allocate fragment memory buffer", "out_of_memory failed-to-allocate@ucx", "Fatal: failed to allocate fragment memory buffer"),
        ("[a:7    :0:7] ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)\n[a:7    :0:7] ib_mlx5_log.c:177  RC QP 0x1 wqe[2]: SEND", "network_failure retry-count-exceeded@ucx", "Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)"),
        ("[a:7    :0:7] ib_mlx5_log.c:177  Local protection on mlx5_0:1/IB (synd 0x4 vend 0x51 hw_synd 0/0)", "crash SIGABRT", "Local protection on mlx5_0:1/IB (synd 0x4 vend 0x51 hw_synd 0/0)"),
    ],
)  # fmt: skip
def test_what_ucx_says_of_a_death(line: str, read_as: str, detail: str | None) -> None:
    (match,) = matches("ucx", line)
    assert (kind_and_key(match), match.signature.detail) == (read_as, detail)
    assert (match.process, match.fatal, match.signature.line) == (("a", 7), True, 1)


@pytest.mark.parametrize(
    "line",
    [
        "[1795183975.242676] [vm:5148 :0]          x.c:15 UCX  DIAG  Assertion `x' failed",
        "heat2d: app.c:16: check_state: Assertion `n < 100' failed.",
        "[vm:7] Caught signal 15, exiting",
        "Process frozen",
        " Fatal: no input file",
    ],
)
def test_what_is_no_report_of_ucx(line: str) -> None:
    assert matches("ucx", line) == []


def test_frames_with_their_sources() -> None:
    text = """[a:7    :0:7] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x20)

/build/ucx/src/uct/base/uct_md.c: [ uct_rkey_release() ]
      ...
==>   359 }
==== backtrace (tid:      7) ====
 0 0x0000000000050ba5 ucs_debug_print_backtrace()  /build/ucx/src/ucs/debug/debug.c:656
 1 0x0000000000050ba5 inlined_by_nobody_knows()  /build/ucx/src/ucs/debug/debug.c:700
 2 0x0000000000012b20 __funlockfile()  :0
 3 0x000000000016db20 __memmove_avx_unaligned_erms()  ???:0
 4 0x000000000001b1a2 uct_rkey_release()  /build/ucx/src/uct/base/uct_md.c:359
 5 0x000000000002d5cb app::Grid::fill()  /src/grid.cc:5
 6 0x0000000000092452 MPI_Bcast()  ???:0
 7 0x00000000000648ed main()  /src/main.cc:58
=================================
"""
    (crash,) = parse_all(text, "ucx")
    assert (crash.key, crash.function, crash.entry_point) == (
        "SIGSEGV@libuct.so!uct_rkey_release",
        "uct_rkey_release",
        "MPI_Bcast",
    )


def test_a_function_of_ucx_is_in_its_library_without_a_source() -> None:
    text = "\n".join(
        [
            CAUGHT.format("a", 7),
            "==== backtrace ====",
            " 0 0x0001 ucs_error_signal_handler()  ???:0",
            " 1 0x0002 uct_ib_md_open()  ???:0",
        ]
    )
    (crash,) = parse_all(text, "ucx")
    assert crash.key == "SIGSEGV@libuct_ib.so!uct_ib_md_open"


def test_a_frozen_process_hangs() -> None:
    text = [
        *ucx("n1", 177, "./heat2d(compute_flux+0x44) [0x563c6b70c3a4]"),
        "[n1:177  :0:177] Process frozen...",
        "step 2",
    ]
    (hang,) = parse_all("\n".join(text), "ucx")
    assert (hang.kind.value, hang.signal, hang.key) == ("hang", "SIGSEGV", "SIGSEGV@heat2d!compute_flux")
    assert hang.primary_line == "[n1:177  :0:177] Process frozen..."


def test_what_is_printed_between_is_no_frame() -> None:
    lines = ucx("n1", 177, "./heat2d(compute_flux+0x44) [0x563c6b70c3a4]")
    lines[3:3] = ["2    3.45", " 1  0x is no frame"]
    assert parse_all("\n".join(lines), "ucx")[0].key == "SIGSEGV@heat2d!compute_flux"


def test_rank_prefixes_tell_mixed_backtraces_apart() -> None:
    one, two = ucx("a", 7, "./x(f+0x1) [0x55]"), ucx("a", 8, "./x(g+0x1) [0x55]")
    mixed = [line for pair in zip((f"0: {x}" for x in one), (f"1: {x}" for x in two), strict=True) for line in pair]
    crashes = parse_all("\n".join(mixed), "ucx")
    assert [(crash.key, crash.ranks) for crash in crashes] == [("SIGSEGV@x!f", (0,)), ("SIGSEGV@x!g", (1,))]


def openmpi(process: str, *frames: str, signal: str = "Segmentation fault (11)") -> list[str]:
    lines = ["*** Process received signal ***", f"Signal: {signal}", "Signal code: Address not mapped (1)"]
    lines += ["Failing at address: 0x18", *(f"[{place:2}] {frame}" for place, frame in enumerate(frames))]
    return [f"[{process}] {line}" for line in (*lines, "*** End of error message ***")]


def stack(base: str, *names: str) -> list[str]:
    frames = [f"/l/libc.so.6(+0x3c050)[{base}8cc050]"]
    return frames + [f"/l/lib{name}.so.1({name}+0x39)[{base}{place:02}9372]" for place, name in enumerate(names)]


FIRST = openmpi("n1:0572", *stack("0x7eb42a", "flux", "MPI_Bcast", "app"))


SECOND = openmpi("n2:0573", *stack("0x7c9e6b", "pack", "MPI_Send", "app"))


KEYS = ["SIGSEGV@libflux.so!flux", "SIGSEGV@libpack.so!pack"]


@pytest.mark.parametrize("seed", range(20))
def test_lines_of_two_processes_in_any_order(seed: int) -> None:
    chance = random.Random(seed)
    left, text = [list(FIRST), list(SECOND)], []
    while any(left):
        text.append(chance.choice([lines for lines in left if lines]).pop(0))
    found = {crash.key: crash.entry_point for crash in parse_all("\n".join(text), "openmpi_crash")}
    assert found == {KEYS[0]: "MPI_Bcast", KEYS[1]: "MPI_Send"}


def test_prefix_number_and_frame_are_written_apart() -> None:
    """Write as opal_backtrace_print does: other ranks' steps come in between, and addresses tell frames apart."""
    text = f"""{FIRST[0]}
{SECOND[0]}
{FIRST[1]}
{SECOND[1]}
[n1:0572] [ 0] [n2:0573] [ 0] /l/libc.so.6(+0x3c050)[0x7c9e6b8cc050]
/l/libc.so.6(+0x3c050)[0x7eb42a8cc050]
[n1:0572] [n2:0573] [ 1] /l/libpack.so.1(pack+0x39)[0x7c9e6b009372]
[ 1] [n2:0573] [ 2] /l/libMPI_Send.so.1(MPI_Send+0x39)[0x7c9e6b019372]
/l/libflux.so.1(flux+0x39)[0x7eb42a009372]
[n1:0572] [ 2] /l/libMPI_Bcast.so.1(MPI_Bcast+0x39)[0x7eb42a019372]
{SECOND[-1]}
{FIRST[-1]}"""
    found = {crash.key: crash.entry_point for crash in parse_all(text, "openmpi_crash")}
    assert found == {KEYS[0]: "MPI_Bcast", KEYS[1]: "MPI_Send"}


def test_a_frame_that_goes_on_in_a_later_line() -> None:
    lines = list(FIRST)
    lines[5:6] = [lines[5][:30], "step 3 residual 0.1", lines[5][30:]]
    assert parse_all("\n".join(lines), "openmpi_crash")[0].key == KEYS[0]


def test_two_prefixes_in_a_line() -> None:
    lines = list(FIRST)
    lines[5:6] = [
        "[n1:0572] [ 1] [n2:0573] *** Process received signal ***",
        lines[5][15:],
        "[n2:0573] Signal: Bus error (7)",
    ]
    assert [crash.key for crash in parse_all("\n".join(lines), "openmpi_crash")] == [KEYS[0], "SIGBUS"]


def test_nuls_and_what_follows_on_the_line() -> None:
    lines = [f"\0{line}" for line in FIRST]
    (crash,) = parse_all("\n".join(lines), "openmpi_crash")
    assert (crash.key, crash.detail, crash.primary_line) == (KEYS[0], "address not mapped", FIRST[1])


def test_both_handlers_and_the_launcher_tell_of_one_crash() -> None:
    frames = ("/l/libucp.so.0(ucp_tag_recv_nbx+0x72b) [0x7fd05b]", "/l/libmpi.so.40(MPI_Recv+0x155) [0x7fd061]")
    first = ucx("node2", 999, *frames)
    again = openmpi("node2:00999", *(frame.replace(" [", "[") for frame in frames))
    ended = "mpirun noticed that process rank 1 with PID 999 on node node2 exited on signal 11 (Segmentation fault)."
    (crash,) = parse_all("\n".join([*first, *again, ended]), *BOTH)
    assert (crash.key, crash.entry_point, crash.ranks) == ("SIGSEGV@libucp.so!ucp_tag_recv_nbx", "MPI_Recv", (1,))
    assert crash.primary_line == first[0]


def test_frames_of_handlers_alone_name_nobody() -> None:
    (crash,) = parse_all("\n".join(ucx("n2", 7)), *BOTH)
    assert (crash.key, crash.library, crash.function) == ("SIGSEGV", None, None)


UCX = "[1795183975.242676] [vm:5148 :0]          x.c:15 UCX  ERROR "


@pytest.mark.parametrize(
    ("text", "read_as", "priority"),
    [
        ("Not enough memory to write total of 42 bytes. Please check that /dev/shm or the directory you specified has more", "out_of_memory no-space@dev-shm", Priority.CAUSE),
        ("ibv_reg_mr(address=0x7f, length=4096, access=0xf) failed: Cannot allocate memory", "out_of_memory Cannot-allocate-memory@ibv_reg_mr", Priority.CAUSE),
        ("ibv_create_cq(cqe=4096) failed: Cannot allocate memory : Please set max locked memory (ulimit -l) to 'unlimited'", "out_of_memory Cannot-allocate-memory@ibv_create_cq", Priority.CAUSE),
        ("cuMemAlloc(&p, n) failed: out of memory", "out_of_memory out-of-memory@ucx", Priority.CAUSE),
        ("Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)", "network_failure Transport-retry-count-exceeded@ib", Priority.SYMPTOM),
        ("Local protection on mlx5_0:1/IB (synd 0x4 vend 0x51 hw_synd 0/0)", "error Local-protection@ib", Priority.CAUSE),
        ("no remote registered memory access transport to vm2: self/memory - Destination is unreachable", "transport_unavailable no-transport@ucx", Priority.CAUSE),
        ("no auxiliary transport to <no debug data>: posix/memory - no connect to iface", "transport_unavailable no-transport@ucx", Priority.CAUSE),
        ("no usable transports/devices (asked rc on all devices)", "transport_unavailable no-device@ucx", Priority.CAUSE),
        ("MD 'mlx5_7' does not exist", "transport_unavailable no-device@ucx", Priority.CAUSE),
        ("mlx5_0: Couldn't enable GPUDirect RDMA. Please make sure nv_peer_mem is loaded", "transport_unavailable no-gpudirect@ucx", Priority.CAUSE),
        ("Invalid value for TLS: 'x'. Expected: comma-separated list", "error invalid-value@TLS", Priority.CAUSE),
        ("connect(fd=28, dest_addr=127.0.0.1:50573) failed: Connection refused", "network_failure connect-failed-Connection-refused@ucx", Priority.SYMPTOM),
        ("error 'Endpoint timeout' will not be handled for ep 0x55 - rc/mlx5_0:1 since no error callback is installed", "network_failure Endpoint-timeout@ucx", Priority.SYMPTOM),
        ("tcp_ep 0x55fa04 (state=CONNECTED): send(29) failed: Input/output error", "error tcp_ep-send-failed-Input-output-error@ucx", Priority.CAUSE),
        ("cuMemcpyAsync(dst, src, n, s) failed: an illegal memory access was encountered", "error an-illegal-memory-access-was-encountered@cuMemcpyAsync", Priority.SYMPTOM),
        ("cuCtxGetDevice(&cu_device) is failed. ret:invalid device context", "error invalid-device-context@cuCtxGetDevice", Priority.SYMPTOM),
        ("failed to get the first receive descriptor", "error failed-to-get-the-first-receive-descriptor@ucx", Priority.SYMPTOM),
    ],
)  # fmt: skip
def test_what_ucx_logs(text: str, read_as: str, priority: Priority) -> None:
    (match,) = matches("ucx_errors", UCX + text)
    assert (kind_and_key(match), match.priority, match.fatal) == (read_as, priority, False)


@pytest.mark.parametrize(
    "text",
    [
        "shm_unlink(/ucx_shm_posix_1f) failed: No such file or directory",
        "ibv_dereg_mr() failed: Invalid argument",
        "RC QP 0x1f2 wqe[17]: RDMA_WRITE s-- [rva 0x7f rkey 0x1]",
    ],
)
def test_what_ucx_logs_for_nothing(text: str) -> None:
    assert matches("ucx_errors", UCX + text) == []


def test_errors_have_all_their_hosts_and_ranks() -> None:
    text = "\n".join(
        f"{rank}: [1.2] [n{rank}:{rank} :0]  x.c:1  UCX  ERROR no active messages transport to b: tcp"
        for rank in (3, 4, 3)
    )
    (error,) = parse_all(text, "ucx_errors")
    assert (error.ranks, error.hosts, error.line) == ((3, 4), ("n3", "n4"), 1)
