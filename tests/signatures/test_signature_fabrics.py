"""What Hydra, Cray's launchers, MVAPICH, libfabric, its NCCL plugin and verbs print of failures, and what not."""

from __future__ import annotations

import time

import pytest

from pytest_hetgpu.logs.lines import parsed
from pytest_hetgpu.signatures.aws_ofi import AwsOfi
from pytest_hetgpu.signatures.base import Dialect, Reading, Weight
from pytest_hetgpu.signatures.cray import Cray
from pytest_hetgpu.signatures.hydra import Hydra
from pytest_hetgpu.signatures.intel_mpi import IntelMpi
from pytest_hetgpu.signatures.libfabric import Libfabric
from pytest_hetgpu.signatures.mpich_assertions import MpichAssertions
from pytest_hetgpu.signatures.mpich_errors import MpichErrors
from pytest_hetgpu.signatures.mpich_exits import MpichExits
from pytest_hetgpu.signatures.mvapich import Mvapich
from pytest_hetgpu.signatures.verbs import Verbs


def readings(dialect: Dialect, text: str) -> list[Reading]:
    for number, line in enumerate(text.splitlines(), 1):
        dialect.feed(parsed(line, number))
    return list(dialect.finish())


def said(dialect: Dialect, text: str) -> list[str]:
    return [f"{one.signature.kind.value} {one.signature.key}" for one in readings(dialect, text)]


MPIEXEC = "[mpiexec@node1] "
SRC = "/mpich-5.0.2/src/pm/hydra/"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"[proxy:0@vm] HYDU_create_process ({SRC}lib/utils/launch.c:73): execvp error on file ./nope "
            "(No such file or directory)",
            "launch_failure no-program@hydra",
        ),
        (
            "[proxy:0:0@vm] HYD_spawn (../libhydra/spawn/intel/hydra_spawn.c:177): execvp error on file ./x "
            "(Permission denied)",
            "launch_failure no-program@hydra",
        ),
        (
            f"[proxy:0@vm] launch_procs ({SRC}proxy/pmip_cb.c:884): unable to change wdir to /nope (No such file)",
            "launch_failure no-folder@hydra",
        ),
        (
            f"{MPIEXEC}HYDU_parse_hostfile ({SRC}lib/utils/args.c:324): unable to open host file: hosts",
            "launch_failure no-hostfile@hydra",
        ),
        (
            f"{MPIEXEC}HYDU_sock_get_iface_ip ({SRC}lib/utils/sock.c:447): unable to find interface nope0",
            "launch_failure no-interface@hydra",
        ),
        (
            f"{MPIEXEC}match_arg ({SRC}lib/utils/args.c:166): unrecognized argument bogus",
            "launch_failure unrecognized-argument@hydra",
        ),
        (
            f"{MPIEXEC}ui_cmd_cb ({SRC}mpiexec/pmiserv_pmci.c:51): Launch proxy failed.",
            "launch_failure no-proxy@hydra",
        ),
        (
            f"{MPIEXEC}Error: Unable to run bstrap_proxy on node9 (pid 19983, exit code 65280)",
            "launch_failure no-proxy@hydra",
        ),
        (
            f"[proxy:1@node2] HYDU_sock_connect ({SRC}lib/utils/sock.c:141): unable to connect from "
            '"node2" to "node1" (Connection refused)',
            "launch_failure Connection-refused@hydra",
        ),
        (
            f"{MPIEXEC}control_cb ({SRC}mpiexec/pmiserv_cb.c:280): assert (!closed) failed",
            "network_failure lost-proxy@hydra",
        ),
        (
            f"[proxy:0:0@node3] HYD_pmcd_pmip_control_cmd_cb ({SRC}proxy/pmip_cb.c:490): assert (!closed) failed",
            "network_failure lost-mpiexec@hydra",
        ),
        (
            f"{MPIEXEC}HYDU_create_process ({SRC}lib/utils/launch.c:21): pipe error (Too many open files)",
            "launch_failure pipe@hydra",
        ),
        (
            f"{MPIEXEC}main ({SRC}mpiexec/mpiexec.c:266): process manager returned error launching processes",
            "launch_failure launch@hydra",
        ),
        (f"{MPIEXEC}main ({SRC}mpiexec/mpiexec.c:49): error parsing parameters", "launch_failure parameters@hydra"),
        (f"{MPIEXEC}APPLICATION TIMED OUT, TIMEOUT = 2s", "timeout time-limit@hydra"),
        (
            "I_MPI_JOB_TIMEOUT = 3 second(s): job ending due to application timeout",
            "timeout time-limit@hydra",
        ),
        ("  exit status of rank 3: killed by signal 9 ", "crash SIGKILL"),
        ("  exit status of rank 3: return code 1 ", "error exit@1"),
    ],
)
def test_hydra(text: str, expected: str) -> None:
    assert said(Hydra(), text) == [expected]


def test_hydra_names_the_host_that_failed_not_its_own() -> None:
    (one,) = readings(Hydra(), f"{MPIEXEC}Error: Unable to run bstrap_proxy on node9 (pid 1, exit code 65280)")
    assert one.signature.hosts == ("node9",)
    (one,) = readings(Hydra(), f"{MPIEXEC}ui_cmd_cb ({SRC}mpiexec/pmiserv_pmci.c:51): Launch proxy failed.")
    assert one.signature.hosts == ()


def test_what_hydra_lost_is_no_cause() -> None:
    text = (
        f"[proxy:2@node3] HYD_pmcd_pmip_control_cmd_cb ({SRC}proxy/pmip_cb.c:490): assert (!closed) failed\n"
        f"{MPIEXEC}HYDT_bscu_wait_for_completion (x.c:109): one of the processes terminated badly; aborting\n"
        "[cli_1]: write_line error; fd=8 buf=:cmd=finalize\n"
    )
    assert {one.weight for one in readings(Hydra(), text)} == {Weight.CONSEQUENCE}


CXI = "libfabric:4411:1712000000::cxi:core:cxip_call():310<warn> nid001234: "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{CXI}Failed to find valid default rgroup and vni for cxi0", "transport_unavailable no-vni@cxi"),
        (f"{CXI}No valid VNIs for cxi0 service ID 1", "transport_unavailable no-vni@cxi"),
        (f"{CXI}Failed to open CXI Device, ret: -13", "transport_unavailable no-device@cxi"),
        (f"{CXI}H/W Event Queue overflow detected.", "error event-queue-overflow@cxi"),
        ("Cassini Event Queue overflow detected.", "error event-queue-overflow@cxi"),
        (
            f"{CXI}RXC (0x1:2) PtlTE 9:[Fatal] LE exhaustion during flow control, "
            "FI_CXI_RX_MATCH_MODE=[hybrid|software] is required",
            "error le-exhaustion@cxi",
        ),
        (f"{CXI}RXC (0x1:2) PtlTE 9:[Fatal] Unexpected state received: 3", "error fatal@cxi"),
        (
            f"{CXI}cxil_map lni: 3 base: 0x0x14 len: 4096 map_flags: 0x3 failure: -12, Cannot allocate memory",
            "out_of_memory cxil_map@cxi",
        ),
        ("cxil_map: write error", "error cxil_map@cxi"),
        (f"{CXI}TXC (0x2:3): Request dest_addr: 5 error: UNDELIVERABLE", "network_failure undeliverable@cxi"),
        (
            "libfabric:11:22::efa:cq:efa_rdm_txe_handle_error():663<warn> EFA provider internal txe failure err: 113, "
            "message: Unreachable remote - never received a response (15)",
            "network_failure Unreachable-remote-never-received-a-response@efa",
        ),
        (
            "libfabric:11:efa:cq:efa_rdm_cq_poll():633<warn> The peer of address fi_addr_efa://[fe80::1]:3:4 becomes "
            "unresponsive",
            "network_failure unresponsive-peer@efa",
        ),
        (
            "Libfabric EFA provider has encountered an internal error:\n\n"
            "Libfabric error: (-12) Cannot allocate memory\nEFA internal error: (4105) Out of memory\n\n"
            "Your application will now abort().",
            "out_of_memory Out-of-memory@efa",
        ),
        (
            "As a result, the Libfabric EFA provider is operating in\na condition that could result in memory",
            "error fork@efa",
        ),
        (
            "libfabric:11:22::tcp:ep_ctrl:xnet_req_done():335<warn> connection failure (sockerr -111)",
            "network_failure connect@tcp",
        ),
        (
            "libfabric:11:22::verbs:domain:vrb_mr_reg():90<warn> ibv_reg_mr: Cannot allocate memory (12)",
            "out_of_memory ibv_reg_mr@verbs",
        ),
        ("fi_getinfo: -61 (No data available)", "transport_unavailable fi_getinfo-No-data-available@libfabric"),
    ],
)
def test_libfabric(text: str, expected: str) -> None:
    assert said(Libfabric(), text) == [expected]


@pytest.mark.parametrize(
    ("reason", "weight"),
    [
        ("connection failure (sockerr -113)", Weight.RELAYED),
        ("connect failure 113(No route to host)", Weight.RELAYED),
        ("connection failure (sockerr -111)", Weight.SYMPTOM),
    ],
)
def test_a_host_out_of_reach_explains_more_than_a_peer_that_refuses(reason: str, weight: Weight) -> None:
    dialect = Libfabric()
    dialect.feed(parsed(f"libfabric:11:22::tcp:ep_ctrl:xnet_req_done():335<warn> {reason}", 1))
    assert [reading.weight for reading in dialect.finish()] == [weight]


@pytest.mark.parametrize(
    "text",
    [
        "libfabric:2951:1795177561::core:core:fi_param_get_():372<info> variable perf_cntr=<not set>",
        "libfabric:2951:1795177561::core:core:ofi_hmem_init():665<warn> Hmem iface FI_HMEM_CUDA not supported",
        "libfabric:11:22::efa:core:x():1<warn> Failed to register CUDA buffer with the EFA device, FI_HMEM transfers "
        "that require peer to peer support will fail.",
        f"{CXI}Target connection failed, retry",
        "libfabric:11:22::core:core:fi_getinfo_():1352<info> fi_getinfo: psm3 returned -61 (No data available)",
    ],
)
def test_what_libfabric_says_and_goes_on(text: str) -> None:
    assert said(Libfabric(), text) == []


NCCL = "node-3:512:601 [2] nccl_net_ofi_init:42 NCCL WARN NET/OFI "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"{NCCL}Unable to insert remote address into address vector for device 0. RC: Invalid argument",
            "network_failure address-vector@aws-ofi-nccl",
        ),
        (
            f"{NCCL}CM: Unable to insert remote address into address vector for device 0. RC: -22",
            "network_failure address-vector@aws-ofi-nccl",
        ),
        (
            f"{NCCL}Couldn't open a fabric access domain. RC: -38, ERROR: Function not implemented",
            "transport_unavailable no-domain@aws-ofi-nccl",
        ),
        (f"{NCCL}OFI fi_getinfo() call failed: No data available", "transport_unavailable no-provider@aws-ofi-nccl"),
        (
            f"{NCCL}Request 0x7f completed with error. RC: 113. Flags: 0. Error: 13 (Unresponsive remote). Completed "
            "length: 0",
            "network_failure completion@aws-ofi-nccl",
        ),
        (
            f"{NCCL}Unable to register memory (type = 2) for device 0. RC: -12, Error: Cannot allocate memory",
            "out_of_memory register-memory@aws-ofi-nccl",
        ),
    ],
)
def test_aws_ofi_nccl(text: str, expected: str) -> None:
    (one,) = readings(AwsOfi(), text)
    assert f"{one.signature.kind.value} {one.signature.key}" == expected
    assert (one.certain, one.signature.hosts) == (False, ("node-3",))


@pytest.mark.parametrize(
    "text",
    [
        "node-3:512:601 [2] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)",
        "node-3:512:601 [2] NCCL INFO NET/OFI Couldn't open a fabric access domain, trying the next",
        f"{NCCL}Failed to find CUDA Runtime library: libcudart.so",
    ],
)
def test_what_the_plugin_says_and_goes_on(text: str) -> None:
    assert said(AwsOfi(), text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ibv_reg_mr(addr=0x1, length=4096) failed: Cannot allocate memory", "out_of_memory ibv_reg_mr@verbs"),
        ("Call to ibv_create_cq failed with error Cannot allocate memory", "out_of_memory ibv_create_cq@verbs"),
        ("ibv_open_device failed on mlx5_0", "transport_unavailable ibv_open_device@verbs"),
        (" Unable to find the Infiniband/RoCE device", "transport_unavailable no-device@perftest"),
        ("IB device mlx5_9 not found", "transport_unavailable no-device@perftest"),
        ("Couldn't connect to node2:18515", "network_failure no-connection@perftest"),
        (" Failed status 12: wr_id 0 syndrom 0x81", "network_failure IBV_WC_RETRY_EXC_ERR@perftest"),
        (" Failed status-local protection error (4): wr_id 0 syndrom 0x51", "error IBV_WC_LOC_PROT_ERR@perftest"),
        ("completion failed: transport retry counter exceeded", "network_failure IBV_WC_RETRY_EXC_ERR@verbs"),
        ("wc status IBV_WC_RETRY_EXC_ERR on qp 7", "network_failure IBV_WC_RETRY_EXC_ERR@verbs"),
        ("wc status IBV_WC_REM_ACCESS_ERR on qp 7", "error IBV_WC_REM_ACCESS_ERR@verbs"),
        ("libibverbs: Fatal: kernel ABI version 5 doesn't match", "transport_unavailable kernel-abi@libibverbs"),
    ],
)
def test_verbs(text: str, expected: str) -> None:
    assert said(Verbs(), text) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "libibverbs: Warning: couldn't load driver 'libhfi1verbs-rdmav34.so': cannot open shared object file",
        "completed opcode IBV_WC_RDMA_WRITE, status IBV_WC_SUCCESS",
        "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0",
        "[1712:a:5 :0] ib_md.c:1 UCX  ERROR ibv_reg_mr(address=0x1) failed: Cannot allocate memory",
        "n:1:2 [0] misc/ibvwrap.cc:1 NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory",
    ],
)
def test_what_verbs_does_not_mean_or_others_read(text: str) -> None:
    assert said(Verbs(), text) == []


def test_a_flushed_request_follows_upon_another_error() -> None:
    (one,) = readings(Verbs(), "wc status IBV_WC_WR_FLUSH_ERR")
    assert one.weight is Weight.CONSEQUENCE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "MPICH ERROR [Rank 3] [job id 1.0] [Thu] [nid001234] - Abort(-1) (rank 3 in comm 0): MPIDI_CRAY_init: "
            "GPU_SUPPORT_ENABLED is requested, but GTL library is not linked",
            "missing_library no-GTL@MPIDI_CRAY_init",
        ),
        (
            "MPICH ERROR: Unable to use a NIC_POLICY of 'NUMA'. Rank 4 is not confined to a single NUMA node.",
            "error NIC_POLICY@cray-mpich",
        ),
        (
            "start failed on x3004c0s7b0n0: No VNIs available in internal allocator",
            "launch_failure no-vni@pals",
        ),
        ("start failed on x3004c0s7b0n0: something else", "launch_failure start-failed@pals"),
        (
            "ping failed on x1921c4s4b0n0: No reply from x1921c4s5b0n0.hostmgmt after 97s",
            "network_failure ping-failed@pals",
        ),
        ("x1921c1s3b0n0.hsn.cm.aurora.example: rank 12 died from signal 11 and dumped core", "crash SIGSEGV"),
        ("x1921c1s3b0n0.hsn.cm.aurora.example: rank 12 exited with code 1", "error exit@1"),
        ("[NID 00012] 2020-01-01 10:00:00 PE RANK 5 exit signal Segmentation fault", "crash SIGSEGV"),
        (
            "[NID 00012] 2020-01-01 10:00:00 Apid 1: OOM killer terminated this process.",
            "out_of_memory oom-killer@alps",
        ),
    ],
)
def test_cray(text: str, expected: str) -> None:
    assert said(Cray(), text) == [expected]


def test_pals_stops_the_other_ranks() -> None:
    text = "x1: rank 1 died from signal 15\nx2: rank 0 died from signal 6\n"
    found = {one.signature.key: (one.weight, one.signature.ranks) for one in readings(Cray(), text)}
    assert found == {"SIGTERM": (Weight.CONSEQUENCE, (1,)), "SIGABRT": (Weight.ENDING, (0,))}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[n1.x.edu:mpi_rank_24][error_sighandler] Caught error: Segmentation fault (signal 11)", "crash SIGSEGV"),
        (
            "[n1.x.edu:mpispawn_0][child_handler] MPI process (rank: 0, pid: 15024) exited with status 252",
            "error exit@252",
        ),
        ("[n1:mpispawn_0][child_handler] MPI process (rank: 0, pid: 1) exited with status 139", "crash SIGSEGV"),
        (
            "[n1:mpispawn_0][child_handler] MPI process (rank: 0, pid: 1) terminated with signal 9 -> abort job",
            "crash SIGKILL",
        ),
        (
            "[n1:mpispawn_0][readline] Unexpected End-Of-File on file descriptor 6. MPI process died?",
            "error process-died@mpispawn",
        ),
        (
            "[3->1] Got completion with error 12, vendor code=0x81, dest rank=1",
            "network_failure IBV_WC_RETRY_EXC_ERR@mvapich",
        ),
    ],
)
def test_mvapich(text: str, expected: str) -> None:
    assert said(Mvapich(), text) == [expected]


ASSERTION = """\
Assertion failed in file src/mpid/ch4/src/init_comm.c at line 72: in_use == 0
/opt/mpich/lib/libmpi.so.12(MPL_backtrace_show+0x34) [0x14763ac07514]
/opt/mpich/lib/libmpi.so.12(MPIR_Assert_fail+0x21) [0x14763aa938b1]
/opt/mpich/lib/libmpi.so.12(MPIDI_destroy_init_comm+0x5a) [0x14763aabd49a]
/opt/mpich/lib/libmpi.so.12(MPI_Finalize+0x9) [0x14763a73d6c6]
Abort(1) on node 6: Internal error
"""


def test_an_assertion_with_its_backtrace() -> None:
    (one,) = readings(MpichAssertions(), ASSERTION)
    found = one.signature
    assert (found.kind.value, found.key) == ("error", "assertion@init_comm.c!in_use")
    assert (found.library, found.function, found.entry_point) == (
        "libmpi.so.12",
        "MPIDI_destroy_init_comm",
        "MPI_Finalize",
    )
    assert (found.ranks, found.signal, found.line) == ((6,), None, 1)


def test_an_assertion_without_one() -> None:
    (one,) = readings(MpichAssertions(), ASSERTION.splitlines()[0])
    assert (one.signature.library, one.signature.function, one.signature.ranks) == (None, None, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Attempting to use an MPI routine (internal_Comm_size) before initializing or after finalizing MPICH",
            "error not-initialized@MPI_Comm_size",
        ),
        ("Attempting to use an MPI routine after finalizing MPICH", "error finalized@MPI"),
        ("Abort(-1) on node 0 (rank 0 in comm 0): Internal error", "error internal-error@MPID_Abort"),
    ],
)
def test_calls_outside_of_mpi(text: str, expected: str) -> None:
    assert said(MpichAssertions(), text) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[0] MPI startup(): tmi fabric is not available and fallback fabric is not enabled",
            "transport_unavailable no-fabric@intel-mpi!tmi",
        ),
        (
            "MPI startup(): Error: Could not auto detect PMI version. Please set I_MPI_PMI variable",
            "launch_failure no-pmi@intel-mpi",
        ),
    ],
)
def test_intel_mpi(text: str, expected: str) -> None:
    assert said(IntelMpi(), text) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "[0] MPI startup(): libfabric provider: tcp",
        "[0] MPI startup(): I_MPI_FABRICS=shm, but multi node launch is detected. Fallback to shm:ofi fabric.",
        "MPI startup(): bad fabric is unknown or has been removed from the product, please use ofi or shm:ofi instead.",
        "MPI startup(): PMI server not found. Please set I_MPI_PMI_LIBRARY variable if it is not a singleton case.",
    ],
)
def test_what_intel_mpi_says_and_goes_on(text: str) -> None:
    assert said(IntelMpi(), text) == []


HOSTILE = (
    "\0" * 50,
    "Abort(" * 700,
    "Fatal error in " * 280,
    "Fatal error in x: " + "a, " * 1300,
    "[Rank 1]" + " [" * 2000 + "Fatal error in x: y",
    "[mpiexec@" + "a" * 4000,
    "[mpiexec@a] " + "(" * 3000 + "unable to find interface",
    "libfabric:1:" + ":" * 4000 + "UNDELIVERABLE",
    "libfabric:1:1::cxi:a:" + "x()" * 1000 + ":1<warn> " + "UNDELIVERABLE " * 100,
    "NCCL WARN NET/OFI " * 200,
    "a:1:1 " + "x" * 3000 + "NET/OFI completed with error",
    "ibv_create_" * 300 + "Cannot allocate memory",
    "Failed status-" + "a " * 2000 + "wr_id",
    "Assertion failed in file " + "/" * 3000 + " at line 9: x",
    "PE RANK 1 exit signal " + "A " * 2000,
    "x" * 3000 + ": rank 1 died from signal 11",
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_line_takes_long_or_raises(text: str) -> None:
    started = time.monotonic()
    for kind in (Hydra, Cray, Mvapich, Libfabric, AwsOfi, Verbs, MpichAssertions, MpichErrors, MpichExits, IntelMpi):
        dialect = kind()
        dialect.feed(parsed(text, 1))
        dialect.finish()
    assert time.monotonic() - started < 1
