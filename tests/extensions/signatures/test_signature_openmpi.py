"""Errors of Open MPI's library in a rank, and exits of ranks as its launchers report them."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.records import RankExit

RULE = "-" * 74


def reader(parser: str, text: str) -> LogParser:
    found = find("signatures", parser, LogParser)()  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        found.feed(parse_line(line, number))
    return found


def parse_all(parser: str, text: str) -> list[Signature]:
    return list(by_priority(reader(parser, text).finish()))


def matches(parser: str, text: str) -> list[FailureMatch]:
    return list(reader(parser, text).finish())


def fatal(
    entry: str, error: str, prefix: str = "[vm:07]", rank: int = 0, on: str = "communicator MPI_COMM_WORLD"
) -> str:
    """Return the block of help-mpi-errors.txt."""
    return "\n".join(
        (
            f"{prefix} *** An error occurred in {entry}",
            f"{prefix} *** reported by process [1204027393,{rank}]",
            f"{prefix} *** on {on}",
            f"{prefix} *** {error}",
            f"{prefix} *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,",
            f"{prefix} ***    and potentially your MPI job)",
        )
    )


@pytest.mark.parametrize(
    ("text", "read_as", "priority"),
    [
        (fatal("MPI_Recv", "MPI_ERR_TRUNCATE: message truncated"), "error MPI_ERR_TRUNCATE@MPI_Recv", Priority.CAUSE),
        (fatal("PMPI_Recv", "MPI_ERR_TRUNCATE: message truncated"), "error MPI_ERR_TRUNCATE@MPI_Recv", Priority.CAUSE),
        (fatal("MPI_Win_lock", "MPI_ERR_RANK: invalid rank", on="win rdma window 3"), "error MPI_ERR_RANK@MPI_Win_lock", Priority.CAUSE),
        (fatal("MPI_File_open", "MPI_ERR_NO_SUCH_FILE: no such file or directory", on="file /x"), "error MPI_ERR_NO_SUCH_FILE@MPI_File_open", Priority.CAUSE),
        (fatal("MPI_Barrier", "MPI_ERR_COMM: invalid communicator", on="a NULL communicator"), "error MPI_ERR_COMM@MPI_Barrier", Priority.CAUSE),
        (fatal("MPI_Alloc_mem", "MPI_ERR_NO_MEM: out of memory"), "out_of_memory MPI_ERR_NO_MEM@MPI_Alloc_mem", Priority.CAUSE),
        (fatal("MPI_Allreduce", "MPI_ERR_INTERN: internal error"), "error MPI_ERR_INTERN@MPI_Allreduce", Priority.UNSPECIFIC),
        (fatal("MPI_Bcast", "Error code: 77 (no associated error message)"), "error failed@MPI_Bcast", Priority.CAUSE),
        (fatal("MPI_Bcast", "the solver gave up"), "error failed@MPI_Bcast", Priority.CAUSE),
        (fatal("MPI_Bcast", "MPI_ERR_PROC_FAILED: Process Failure"), "error peer-lost@openmpi", Priority.CONSEQUENCE),
        (fatal("Socket closed", "Unknown error", "[node1:00000]", on="a NULL communicator"), "error peer-lost@openmpi", Priority.CONSEQUENCE),
        ("*** An error occurred in MPI_Init_thread\n*** on a NULL communicator\n*** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,", "launch_failure failed@MPI_Init", Priority.UNSPECIFIC),
        ("*** The MPI_Comm_rank() function was called before MPI_INIT was invoked.\n*** This is disallowed by the MPI standard.", "error not-initialized@MPI_Comm_rank", Priority.CAUSE),
        ("*** The MPI_Comm_rank() function was called after MPI_FINALIZE was invoked.", "error finalized@MPI_Comm_rank", Priority.CAUSE),
        ("*** An MPI function was called before MPI_INIT was invoked.", "error not-initialized@MPI", Priority.CAUSE),
        ("Open MPI has detected that this process has attempted to initialize\nMPI (via MPI_INIT or MPI_INIT_THREAD) more than once.  This is", "error this-process-has-attempted-to-initialize@openmpi", Priority.CAUSE),
        ("[vm:05342] PML ucx cannot be selected", "transport_unavailable no-component@pml", Priority.RELAYED),
        ("[vm:1] [[3,1],0] selected pml ob1, but peer [[3,1],1] on node2 selected pml ucx", "transport_unavailable mismatch@pml", Priority.CAUSE),
        ("[vm:1] pml_ucx.c:871  Error: ucx send failed: Input/output error", "error ucx-send-failed-Input-output-error@pml_ucx", Priority.UNSPECIFIC),
        ("[vm:1] pml_ucx.c:871  Error: ucx send failed: Connection reset by remote peer", "network_failure ucx-send-failed-Connection-reset-by-remote-peer@pml_ucx", Priority.UNSPECIFIC),
        ("[vm:1] pml_ucx.c:335  Warning: UCP worker does not support MPI_THREAD_MULTIPLE. PML UCX could not be selected", "transport_unavailable no-thread-multiple@ucx", Priority.CAUSE),
        ("[vm][[1,1],0][btl_tcp_frag.c:9:mca_btl_tcp_frag_recv] mca_btl_tcp_frag_recv: readv failed: Connection reset by peer (104)", "network_failure Connection-reset-by-peer@mca_btl_tcp_frag_recv", Priority.CONSEQUENCE),
        ("[vm][[1,1],0][btl_tcp_endpoint.c:729:mca_btl_tcp_endpoint_start_connect] bind() failed: Address already in use (98)", "network_failure Address-already-in-use@mca_btl_tcp_endpoint_start_connect", Priority.SYMPTOM),
        ("[[1,1],0][btl_tcp_endpoint.c:855:mca_btl_tcp_endpoint_start_connect] from a to: node2 Unable to connect to the peer 10.0.0.2 on port 1024: Connection refused", "network_failure connect@openmpi", Priority.SYMPTOM),
        ("WARNING: Open MPI failed to TCP connect to a peer MPI process.  This\n  Local host: a\n  PID:        7\n  Message:    connect() to 10.0.0.2:1024 failed\n  Error:      No route to host (113)", "network_failure connect@openmpi", Priority.RELAYED),
        ("[vm][[1,1],0][btl_tcp_frag.c:9:mca_btl_tcp_frag_send] mca_btl_tcp_frag_send: writev failed: Broken pipe (32)", "network_failure Broken-pipe@mca_btl_tcp_frag_send", Priority.CONSEQUENCE),
        # A block that another rank's line interrupts.
        ("mca_btl_tcp_frag_send: writev failed: Broken pipe (32)", "network_failure Broken-pipe@mca_btl_tcp_frag_send", Priority.CONSEQUENCE),
        ("[vm][[1,1],0][btl_tcp_frag.c:9:mca_btl_tcp_frag_send] mca_btl_tcp_frag_send: writev failed: Connection timed out (110)", "network_failure Connection-timed-out@mca_btl_tcp_frag_send", Priority.RELAYED),
        ("[vm:1] pml_ucx.c:990  Error: mca_pml_ucx_send_nbr failed: -80, Endpoint timeout", "network_failure mca_pml_ucx_send_nbr-failed-Endpoint-timeout@pml_ucx", Priority.SYMPTOM),
        ("[vm:1] pml_ucx.c:871  Error: ucx send failed: Destination is unreachable", "network_failure ucx-send-failed-Destination-is-unreachable@pml_ucx", Priority.SYMPTOM),
        ("[vm:1] pml_ucx.c:871  Error: ucx recv failed: Out of memory", "out_of_memory ucx-recv-failed-Out-of-memory@pml_ucx", Priority.RELAYED),
        ("[vm:1] pml_ucx.c:871  Error: ucx recv failed: Request canceled", "error ucx-recv-failed-Request-canceled@pml_ucx", Priority.CONSEQUENCE),
        ("[vm:1] osc_ucx_comm.c:40  Error: ucp_atomic_post failed: -22", "transport_unavailable ucp_atomic_post-failed@osc_ucx", Priority.RELAYED),
        ("[vm:1] common_ucx_wpool.c:40  Error: opal_common_ucx_flush failed: -6", "error opal_common_ucx_flush-failed@common_ucx", Priority.UNSPECIFIC),
        (fatal("MPI_Allreduce: the reduction operation MPI_BAND is not defined on the MPI_DOUBLE datatype", "MPI_ERR_OP: invalid reduce operation"), "error MPI_ERR_OP@MPI_Allreduce", Priority.CAUSE),
        ("The InfiniBand retry count between two MPI processes has been\nexceeded.", "network_failure The-InfiniBand-retry-count-between-two-MPI-processes-has@openib", Priority.CAUSE),
    ],
)  # fmt: skip
def test_errors(text: str, read_as: str, priority: Priority) -> None:
    first, *others = matches("openmpi_errors", text)
    assert others == []
    assert f"{first.signature.kind.value} {first.signature.key}" == read_as
    assert first.priority is priority


@pytest.mark.parametrize(
    "text",
    [
        "[node1:07] Read -1, expected 33554432, errno = 1",
        "the interface cannot be selected",
        "[vm:1] *** Process received signal ***",
        "*** 17 steps done ***",
        "The call to cuIpcGetMemHandle failed. This means the GPU RDMA protocol",
        "[vm:1] osc_ucx_component.c:369  Error: OSC UCX component priority set inside component query failed",
        "[vm:1] pml_ucx.c:197 mca_pml_ucx_open: UCX version 1.18.0",
        "WARNING: No preset parameters were found for the device that Open MPI",
        "[vm:1] Local abort before MPI_INIT completed completed successfully, but am not able to aggregate",
    ],
)
def test_no_errors(text: str) -> None:
    assert matches("openmpi_errors", text) == []


def test_interleaved_blocks_of_ranks_are_told_apart() -> None:
    one = fatal("MPI_Recv", "MPI_ERR_TRUNCATE: message truncated", "[a:11]", 1).split("\n")
    two = fatal("MPI_Send", "MPI_ERR_RANK: invalid rank", "[b:12]", 2).split("\n")
    mixed = "\n".join(line for pair in zip(one, two, strict=True) for line in pair)
    found = {(s.key, s.ranks, s.hosts, s.entry_point) for s in parse_all("openmpi_errors", mixed)}
    assert found == {
        ("MPI_ERR_TRUNCATE@MPI_Recv", (1,), ("a",), "MPI_Recv"),
        ("MPI_ERR_RANK@MPI_Send", (2,), ("b",), "MPI_Send"),
    }


def test_ranks_with_one_error_are_one_failure() -> None:
    blocks = "\n".join(
        fatal("MPI_Recv", "MPI_ERR_TAG: invalid tag", f"[a:{pid}]", rank) for rank, pid in ((0, 7), (1, 8))
    )
    (found,) = parse_all("openmpi_errors", blocks)
    assert (found.ranks, found.primary_line) == ((0, 1), "[a:7] *** MPI_ERR_TAG: invalid tag")


def test_a_vague_error_lends_its_function_to_what_failed_below() -> None:
    text = "At least one pair of MPI processes are unable to reach each other for\n"
    first, second = parse_all("openmpi_errors", text + fatal("MPI_Allreduce", "MPI_ERR_INTERN: internal error"))
    assert (first.key, first.entry_point) == ("unreachable@openmpi", "MPI_Allreduce")
    assert second.key == "MPI_ERR_INTERN@MPI_Allreduce"


def test_the_line_of_a_rank_outweighs_the_help_text_beside_it() -> None:
    text = "No components were able to be opened in the pml framework.\n\n  Host:      a\n[a:07] PML ucx cannot be selected"
    (found,) = parse_all("openmpi_errors", text)
    assert (found.key, found.line) == ("no-component@pml", 4)
    (alone,) = parse_all("openmpi_errors", text.partition("\n\n")[0])
    assert (alone.key, alone.line) == ("no-component@pml", 1)


def test_a_component_is_quoted_by_its_own_line() -> None:
    text = "A requested component was not found, or was unable to be opened.  This\n\nHost:      vm\nFramework: btl\nComponent: tcpp"
    (found,) = parse_all("openmpi_errors", text)
    assert (found.key, found.primary_line) == ("no-component@tcpp", "Component: tcpp")


def test_a_lost_help_text_counts_only_where_nothing_else_was_said() -> None:
    lost = "[vm:5] [[3,0],0] ORTE_ERROR_LOG: Out of resource in file orte/util/show_help.c at line 507\n"
    assert [s.key for s in parse_all("openmpi_errors", lost + "[vm:6] PML cm cannot be selected")] == [
        "no-component@pml"
    ]


ABORT4 = (
    "MPI_ABORT was invoked on rank {} in communicator MPI_COMM_WORLD\nwith errorcode {}.\n\nNOTE: invoking MPI_ABORT"
)
COUNTED = f"{RULE}\n   Process name: [prterun-vm-3105@1,{{}}]\n   Exit code:    {{}}\n{RULE}"


@pytest.mark.parametrize(
    ("text", "read_as", "priority"),
    [
        (ABORT4.format(3, 3), "error MPI_Abort@3", Priority.EXIT),
        (ABORT4.format(3, -1), "error MPI_Abort@-1", Priority.EXIT),
        (COUNTED.format(1, 7), "error exit@7", Priority.EXIT),
        (COUNTED.format(1, 139), "crash SIGSEGV", Priority.EXIT),
        (COUNTED.format(1, 137), "crash SIGKILL", Priority.EXIT),
        (COUNTED.format(1, 143), "crash SIGTERM", Priority.CONSEQUENCE),
        (COUNTED.format(1, 255), "error exit@255", Priority.EXIT),
        (COUNTED.format(1, 130), "error exit@130", Priority.EXIT),
        ("[vm:1] *** MPI_ERR_RANK: invalid rank\n" + COUNTED.format(1, 6), "error exit@6", Priority.UNSPECIFIC),
        ("Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction", "error exit@mpirun", Priority.UNSPECIFIC),
        ("mpirun noticed that the job aborted, but has no info as to the process\nthat caused that situation.", "error aborted@mpirun", Priority.UNSPECIFIC),
        ('mpirun has exited due to a process exiting without calling "finalize",\nbut has no info', "error no-finalize@mpirun", Priority.EXIT),
        ('prterun has exited due to process rank 0 with PID 0 on node node1 calling\n"abort". This may', "error abort@mpirun", Priority.CONSEQUENCE),
        ('prterun has exited due to process rank 0 with PID 7 on node node1 calling\n"abort". This may', "error abort@mpirun", Priority.UNSPECIFIC),
        ("3 total processes killed (some possibly by mpirun during cleanup)", "error killed@mpirun", Priority.CONSEQUENCE),
    ],
)  # fmt: skip
def test_endings(text: str, read_as: str, priority: Priority) -> None:
    (found,) = matches("openmpi_exits", text)
    assert f"{found.signature.kind.value} {found.signature.key}" == read_as
    assert found.priority is priority


def test_aborts_of_several_ranks_in_each_other() -> None:
    lines = [
        "2: MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD",
        "1: MPI_ABORT was invoked on rank 1 in communicator MPI COMMUNICATOR 3 DUP FROM 0",
        "1: with errorcode 6.",
        "2: with errorcode 5.",
    ]
    found = reader("openmpi_exits", "\n".join(lines))
    assert {(r.signature.key, r.signature.ranks) for r in found.finish()} == {
        ("MPI_Abort@5", (2,)),
        ("MPI_Abort@6", (1,)),
    }
    assert {ended.rank for ended in found.exits()} == {1, 2}


def test_what_is_said_of_a_rank_outweighs_what_is_said_of_the_job() -> None:
    text = f"Primary job  terminated normally, but 1 process returned\na non-zero\n{RULE}\n  Process name: [[30881,1],0]\n  Exit code:    1"
    found = reader("openmpi_exits", text)
    assert [match.signature.key for match in found.finish()] == ["exit@1"]
    assert found.exits() == (RankExit(0, code=1),)


def test_endless_beginnings_are_bounded() -> None:
    text = "\n".join(f"{rank}: MPI_ABORT was invoked on rank {rank} in communicator X" for rank in range(5000))
    assert matches("openmpi_exits", text) == []
    assert [s.key for s in parse_all("openmpi_exits", f"{text}\n{COUNTED.format(1, 9)}")] == ["exit@9"]


def test_what_follows_the_function_is_the_detail() -> None:
    told = "the reduction operation MPI_BAND is not defined on the MPI_DOUBLE datatype"
    (found,) = parse_all("openmpi_errors", fatal(f"MPI_Allreduce: {told}", "MPI_ERR_OP: invalid reduce operation"))
    assert (found.entry_point, found.detail, found.line) == ("MPI_Allreduce", told, 4)


def test_where_the_runtime_stands_in_the_place_of_a_function_it_is_quoted() -> None:
    (found,) = parse_all("openmpi_errors", fatal("Socket closed", "Unknown error", "[node1:00000]"))
    assert found.primary_line == "[node1:00000] *** An error occurred in Socket closed"
    assert (found.key, found.line, found.entry_point) == ("peer-lost@openmpi", 1, None)


def test_full_shared_memory_explains_who_cannot_be_reached() -> None:
    text = (
        "It appears as if there is not enough space for /dev/shm/sm_segment.vm.0.bf350001.1 (the shared-memory backing"
        "\nAt least one pair of MPI processes are unable to reach each other for"
    )
    assert [found.key for found in parse_all("openmpi_errors", text)] == ["no-space@dev-shm", "unreachable@openmpi"]
