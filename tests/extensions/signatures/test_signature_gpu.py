"""NCCL, RCCL, CUDA and HIP: meanings of single texts, and the warning that made a run fail."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures._messages.gpu import gpu_error
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.model.failure import Signature

NCCL = "gpu3:4711:4790 [2] "


def matches(parser: str, text: str) -> Sequence[FailureMatch]:
    reader = find("signatures", parser, LogParser)()  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        reader.feed(parse_line(line, number))
    return reader.finish()


def first(parser: str, text: str) -> Signature:
    return by_priority(matches(parser, text))[0]


@pytest.mark.parametrize(
    ("warning", "means"),
    [
        ("NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129", "network_failure RETRY_EXC_ERR@nccl CAUSE"),
        ("NET/IB : Got completion from peer 10.1.2.3<40001> with error 4, opcode 0, len 7, vendor err 81 (Send)", "network_failure LOC_PROT_ERR@nccl CAUSE"),
        ("NET/IB: Got completion from peer 10.1.2.3<40001> with status=12 opcode=129 len=0 vendor err 129 (Recv) localGid fe80::1 hca mlx5_0", "network_failure RETRY_EXC_ERR@nccl CAUSE"),
        ("NET/IB: Got completion from peer a<1> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RECV(128) reqSize=1 vendor_err=129 req_type=Recv hca mlx5_1", "network_failure RETRY_EXC_ERR@nccl CAUSE"),
        ("NET/IB : Got completion with error 5, opcode 0, len 0, vendor err 249", "network_failure WR_FLUSH_ERR@nccl RELAYED"),
        ("Connect to 10.1.2.3<40001> failed : Connection refused", "network_failure connect@nccl RELAYED"),
        ("socketStartConnect: Connect to 10.1.2.3<40001> failed : Software caused connection abort", "network_failure connect@nccl RELAYED"),
        ("Net : Call to recv from 10.1.2.3<40001> failed : Connection reset by peer", "network_failure peer-lost@nccl SYMPTOM"),
        ("socketProgress: Connection closed by remote peer gpu4<40001>", "network_failure peer-lost@nccl SYMPTOM"),
        ("NET/IB : mlx5_0:1 Got async event : port error", "network_failure async-event@nccl RELAYED"),
        ("NET/Socket : peer 10.1.2.3<4> message truncated : receiving 1048576 bytes instead of 32768", "error message-truncated@nccl CAUSE"),
        ("NET/IB : req 0/1 tag 7 peer 10.1.2.3<4> collective mismatch error, local size 4 remote size 8", "error collective-mismatch@nccl CAUSE"),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1e0", "error duplicate-gpu@nccl CAUSE"),
        ("Error: network AWS Libfabric not found.", "transport_unavailable no-network@nccl CAUSE"),
        ("Bootstrap : no socket interface found", "transport_unavailable no-interface@nccl CAUSE"),
        ("Call to posix_fallocate failed : No space left on device", "out_of_memory no-space@dev-shm CAUSE"),
        ("Error: failed to extend /dev/shm/nccl-abcdef to 9637892 bytes", "out_of_memory no-space@dev-shm CAUSE"),
        ("Error while creating shared memory segment /dev/shm/nccl-abcdef (size 9637888)", "out_of_memory no-space@dev-shm RELAYED"),
        ("Call to ibv_create_qp failed with error Cannot allocate memory", "out_of_memory out-of-memory@nccl CAUSE"),
        ("Cuda failure 'out of memory'", "out_of_memory out-of-memory@gpu CAUSE"),
        ("Cuda failure 2 'out of memory'", "out_of_memory out-of-memory@gpu CAUSE"),
        ("HIP failure 'invalid device function'", "gpu_arch_mismatch no-kernel-image@gpu CAUSE"),
        ("HIP failure: 'no ROCm-capable device is detected'", "error NoDevice@gpu CAUSE"),
        ("NCCL version mismatch with remote peer 10.1.2.3<4> (local: 22105, remote 21805)", "error version-mismatch@nccl CAUSE"),
        ("AllReduce : sendbuff argument is NULL", "error invalid-argument@nccl CAUSE"),
        ("MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX configuration (nvidia-imex-ctl -N). Set NCCL_MNNVL_ENABLE=0 to ignore this issue.", "error imex@nccl CAUSE"),
        ("Comm 0x55d0 is in abort state", "error aborted@nccl CONSEQUENCE"),
        ("Could not find net id 4", "error Could-not-find-net-id@nccl RELAYED"),
    ],
)  # fmt: skip
def test_warnings_of_nccl(warning: str, means: str) -> None:
    (match,) = matches("nccl", f"{NCCL}transport/net_ib.cc:789 NCCL WARN {warning}")
    signature = match.signature
    assert f"{signature.kind.value} {signature.key} {match.priority.name}" == means
    assert signature.hosts == ("gpu3",)
    assert match.process == ("gpu3", 4711)
    assert not match.fatal


@pytest.mark.parametrize(
    "warning",
    [
        'Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!',
        "NUMA auto balancing enabled which can lead to variability in the RCCL performance!",
        "NCCL_MIN_NRINGS set to a value greater than NCCL_MAX_NRINGS, ignoring NCCL_MIN_NRINGS",
        "minCTAs 64 is larger than #channels upper limit 32, cap it to 32",
        "unlink shared memory /dev/shm/nccl-abc failed, error: No such file or directory",
        "NET/OFI Unable to find a protocol that worked. Failing initialization.",
        "NET/IB : mlx5_0:1 Got async event : port active",
        "Failed to open libibverbs.so[.1]",
    ],
)
def test_warnings_that_runs_survive(warning: str) -> None:
    assert matches("nccl", f"{NCCL}src/init.cc:142 NCCL WARN {warning}") == ()


@pytest.mark.parametrize(
    "prefix",
    [
        "gpu3:4711:4790 [0] init.cc:12 NCCL WARN ",
        "gpu3:4711:4790 [-831902828] src/init.cc:12 NCCL WARN ",
        "[2026-01-30 12:00:01] gpu3:4711:4790 [0] init.cc:12 NCCL WARN ",
        "gpu3:4711:4790 [0] /build/src/init.cc:12 (ncclInit) NCCL WARN ",
        " 3: gpu3:4711:4790 [0] init.cc:12 NCCL WARN ",
    ],
)
def test_forms_of_the_prefix(prefix: str) -> None:
    signature = first("nccl", prefix + "No transport found for rank 0[1] -> rank 1[1]")
    assert (signature.key, signature.hosts) == ("no-transport@nccl", ("gpu3",))


def test_the_warning_that_the_call_failed_for() -> None:
    """Skip the warning of a thread that goes on, and of a program whose call returned no error."""
    log = "\n".join(
        (
            "gpu3:193:193 [0] src/enqueue.cc:95 NCCL WARN HIP failure 'invalid device ordinal'",
            "gpu3:193:193 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>",
            "gpu3:193:193 [0] src/misc/x.cc:5 NCCL WARN HIP failure 'invalid argument'",
            "ncclGetUniqueId: 0 no error",
            "",
            "gpu3:193:193 [0] src/init.cc:1442 NCCL WARN HIP failure 'no ROCm-capable device is detected'",
            "ncclCommInitRank: 1 unhandled cuda error",
        )
    )
    found = by_priority(matches("nccl", log))
    assert [signature.key for signature in found] == [
        "NoDevice@gpu",
        "ncclUnhandledCudaError@ncclCommInitRank",
        "InvalidDevice@gpu",
        "InvalidValue@gpu",
    ]
    assert found[0].entry_point == "ncclCommInitRank"
    assert found[2].entry_point is None


def test_a_lost_communicator_is_proven_by_its_thread() -> None:
    warning = f"{NCCL}transport/net_ib.cc:789 NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129\n"
    trail = f"{NCCL}NCCL INFO include/net.h:29 -> 2\n"
    (read,) = matches("nccl", warning + trail)
    assert not read.fatal
    (read,) = matches(
        "nccl", warning + trail + f"{NCCL}NCCL INFO transport.cc:163 -> 2 [Proxy Thread]\n{NCCL}NCCL INFO on"
    )
    assert read.fatal
    assert read.priority is Priority.CAUSE
    assert read.signature.detail == "completion error 12 (transport retry counter exceeded), vendor error 129"


def test_ranks_are_known_from_where_a_communicator_was_made() -> None:
    log = f"{NCCL}NCCL INFO comm 0x7f00 rank 6 nranks 8 cudaDev 2 busId 1e0 - Init COMPLETE\n{NCCL}x.cc:1 NCCL WARN Too many open files"
    assert first("nccl", log).ranks == (6,)


@pytest.mark.parametrize(
    ("line", "means", "entry"),
    [
        ("gpu3: Test NCCL failure all_reduce.cu:44 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '", "error ncclSystemError@nccl", None),
        ("gpu3: Test NCCL failure common.cu:958 'unhandled cuda error (run with NCCL_DEBUG=INFO for details) / Cuda failure 2 'out of memory''", "out_of_memory out-of-memory@gpu", None),
        ("gpu3: Test NCCL failure common.cu:958 'remote process exited or there was a network error / Net : Connection closed by remote peer gpu4<1>'", "network_failure peer-lost@nccl", None),
        ("Failed, NCCL error main.cc:12 'invalid usage (run with NCCL_DEBUG=WARN for details)'", "error ncclInvalidUsage@nccl", None),
        ("ncclCommInitRank failed: ncclInvalidUsage", "error ncclInvalidUsage@ncclCommInitRank", "ncclCommInitRank"),
        ("[rank 2] ncclAllReduce(a, b, n) returned 6: remote process exited or there was a network error", "network_failure ncclRemoteError@ncclAllReduce", "ncclAllReduce"),
    ],
)  # fmt: skip
def test_results_in_other_peoples_words(line: str, means: str, entry: str | None) -> None:
    (match,) = matches("nccl", line)
    signature = match.signature
    assert (f"{signature.kind.value} {signature.key}", signature.entry_point) == (means, entry)
    assert match.fatal
    assert signature.hosts == (("gpu3",) if line.startswith("gpu3") else ())


@pytest.mark.parametrize(
    "line",
    [
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:31, unhandled cuda error, NCCL version 2.21.5",
        "ncclUnhandledCudaError: Call to CUDA function failed.",
        "gpu3:1:1 [0] NCCL INFO init.cc:12 -> 1",
        "ncclGetUniqueId: 0 no error",
        "MPI: invalid argument",
    ],
)
def test_what_is_no_result_of_a_program(line: str) -> None:
    assert matches("nccl", line) == ()


@pytest.mark.parametrize(
    ("line", "means"),
    [
        ("CUDA error: an illegal memory access was encountered", "error IllegalAddress@gpu True"),
        ("[rank 3] CUDA error at main.cu:77 code=700(cudaErrorIllegalAddress) \"cudaDeviceSynchronize()\"", "error IllegalAddress@gpu True"),
        ("gpu3: Test CUDA failure common.cu:891 'out of memory'", "out_of_memory out-of-memory@gpu True"),
        ("Cuda failure main.cu:5: 'invalid device ordinal'", "error InvalidDevice@gpu True"),
        ("GPUassert: unspecified launch failure main.cu 12", "error LaunchFailure@gpu True"),
        ("HIP error: no kernel image is available for execution on the device", "gpu_arch_mismatch no-kernel-image@gpu True"),
        ("cudaMalloc failed: out of memory", "out_of_memory out-of-memory@gpu True"),
        ("hipGetDeviceCount() returned 100: hipErrorNoDevice", "error NoDevice@gpu True"),
        ("checkCudaErrors() Driver API error = 0100 \"CUDA_ERROR_NO_DEVICE\" from file <a.cpp>, line 12.", "error NoDevice@gpu True"),
        ("terminating: no CUDA-capable device is detected", "error NoDevice@gpu False"),
        ("hipErrorNoBinaryForGpu: Unable to find code object for all current devices!", "gpu_arch_mismatch no-kernel-image@gpu True"),
        ("Memory access fault by GPU node-1 (Agent handle: 0x55d0) on address 0x7f0000. Reason: Unknown.", "crash memory-access-fault@gpu True"),
        (":0:rocdevice.cpp            :2982: 1234 us: [pid:1] Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION".replace("aborting", "Aborting"), "crash HSA_STATUS_ERROR_EXCEPTION@gpu True"),
        ("Callback: Queue 0x7f Aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed Code: 0x1008 Available Free mem : 0 MB", "out_of_memory HSA_STATUS_ERROR_OUT_OF_RESOURCES@gpu True"),
        ("Callback: Queue 0x7f Aborting with error : HSA_STATUS_ERROR_INVALID_ISA: The instruction set", "gpu_arch_mismatch HSA_STATUS_ERROR_INVALID_ISA@gpu True"),
        ("[12.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=12, GPU has fallen off the bus.", "error Xid-79@gpu False"),
        ("a.cu:7: f: block: [0,0,0], thread: [31,0,0] Assertion `i < n` failed.", "error Assert@gpu False"),
        ("cuBLAS call returned CUBLAS_STATUS_EXECUTION_FAILED", "error CUBLAS_STATUS_EXECUTION_FAILED@gpu False"),
        ("Unable to open /dev/kfd read-write: Permission denied", "error no-driver@gpu False"),
        ("Failed to initialize NVML: Driver/library version mismatch", "error nvml-Driver-library-version-mismatch@gpu False"),
    ],
)  # fmt: skip
def test_errors_of_gpu_runtimes(line: str, means: str) -> None:
    (match,) = matches("cuda_hip", line)
    assert f"{match.signature.kind.value} {match.signature.key} {match.fatal}" == means
    assert match.signature.signal is None


@pytest.mark.parametrize(
    "line",
    [
        "[1795.24] [gpu3:5 :0]  cuda_copy_md.c:15 UCX  ERROR cuMemcpyAsync() failed: an illegal memory access was encountered",
        "gpu3:1:1 [0] init.cc:1 NCCL WARN Cuda failure 'out of memory'",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up environment",
        "cuda errors: 0 errors",
        "CUDA error checking is enabled: no error",
        "Aborted (core dumped)",
    ],
)
def test_what_is_no_error_of_a_gpu(line: str) -> None:
    assert matches("cuda_hip", line) == ()


def test_a_runtime_that_aborts_dies_of_a_signal_only_if_the_log_says_so() -> None:
    fault = "Memory access fault by GPU node-1 (Agent handle: 0x55d0) on address 0x7f0000. Reason: Unknown."
    assert first("cuda_hip", f"{fault}\nAborted (core dumped)").signal == "SIGABRT"
    assert first("cuda_hip", f"{fault}\n[gpu3:00012] Signal: Aborted (6)").signal == "SIGABRT"
    assert first("cuda_hip", f"CUDA error: out of memory\n{fault}\nAborted").signal is None


def test_names_of_errors_are_one_for_cuda_and_hip() -> None:
    names = ("cudaErrorNoDevice", "hipErrorNoDevice", "CUDA_ERROR_NO_DEVICE", "no ROCm-capable device is detected")
    assert {getattr(gpu_error(text), "name", None) for text in names} == {"NoDevice"}
    assert {getattr(gpu_error(text), "key", None) for text in ("cudaErrorMemoryAllocation", "hipErrorOutOfMemory")} == {
        "out-of-memory@gpu"
    }
    assert gpu_error("cudaErrorSomethingNew") is not None
    assert gpu_error("all is well") is None
