"""Every shipped entry is found in a log that shows its failure (composed in the form that the tools write)."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hetgpu.analysis.explain import explain
from pytest_hetgpu.config.known_failures.load import known_failures

CAUGHT = "[n1:7   :0:7] Caught signal 11 (Segmentation fault: {})"
TRACE = "==== backtrace (tid:      7) ====\n 0  /usr/lib/libucs.so.0(ucs_handle_error+0x2e4) [0x7f01]\n 1  /lib/libc.so.6(+0x42520) [0x7f02]\n 2  {} [0x7f03]\n================================="
UCX = "[1795183975.242676] [n1:7   :0]          x.c:15   UCX  ERROR "
NCCL = "n1:7:9 [0] {} NCCL WARN {}\nn1:7:9 [0] NCCL INFO net.cc:29 -> {}"
PYTHON = 'Traceback (most recent call last):\n  File "train.py", line 7, in main\n{}'
ENDED = "srun: error: n1: task 0: Exited with exit code 1"


def crash(detail: str, frame: str) -> str:
    return f"{CAUGHT.format(detail)}\n{TRACE.format(frame)}"


NO_TRANSPORT = "[1795759857.255815] [vm2:465  :0]  select.c:657  UCX  ERROR   no {} transport to <no debug data>: Unsupported operation"
LAB_LOGS = Path(__file__).parents[2] / "data" / "logs"
LOGS = {
    "ucx-no-large-bar": crash(
        "invalid permissions for mapped object at address 0x7f3",
        "/usr/lib/libuct_rocm.so.0(uct_rocm_copy_ep_get_short+0x5b)",
    ),
    "ucx-no-large-bar-bare": CAUGHT.format("invalid permissions for mapped object at address 0x7f3"),
    "ucx-owner-thread": "[n1:7  :0:8]  tag_send.c:248  Assertion `ucs_async_check_owner_thread(&(ep->worker)->async)' failed",
    "ucx-two-threads": "[n1:7  :0:8]  ucp_worker.c:2000 Assertion `worker->inprogress++ == 0' failed",
    "ucx-no-cuda-context": f"{UCX}cuCtxGetDevice(&cu_device) is failed. ret:invalid device context\n"
    + crash("address not mapped to object at address 0x20", "/usr/lib/libuct.so.0(uct_rkey_release+0x1)"),
    "openmpi-pml-differs": "[n1:00007] [[1,1],0] selected pml ob1, but peer [[1,1],1] on n2 selected pml ucx",
    "openmpi-ucx-devices": "[n1:00741] PML ucx cannot be selected",
    "pmix-files-unseen": "[c1:00050] PMIX ERROR: PMIX_ERR_FILE_OPEN_FAILURE in file ../../src/mca/gds/shmem2/gds_shmem2.c at line 1056\n*** An error occurred in MPI_Init_thread\nsrun: error: c1: task 0: Exited with exit code 14",
    "pmix-namesake-files": "--------------------------------------------------------------------------\nThe PMIx server's listener thread failed to start. We cannot\ncontinue.\n--------------------------------------------------------------------------",
    "nccl-ib-timeout": NCCL.format(
        "transport/net_ib.cc:789",
        "NET/IB : Got completion from peer 10.0.0.2<4> with status=12 opcode=0 len=0 vendor err 129 (Send)",
        6,
    ),
    "nccl-ib-protection": NCCL.format(
        "transport/net_ib.cc:789", "NET/IB : Got completion with error 4, opcode 0, len 0, vendor err 81", 6
    ),
    "nccl-ib-flushed": NCCL.format(
        "transport/net_ib.cc:789", "NET/IB : Got completion with error 5, opcode 0, len 0, vendor err 249", 6
    ),
    "ucx-memory-not-lockable": f"{UCX}ibv_create_cq(cqe=4096) failed: Cannot allocate memory\n{ENDED}",
    "ucx-empty-gid": "[1795759720.567921] [vm1:236  :0]       ib_device.c:1337 UCX  DIAG  invalid gid[7] on rxe0:1\n"
    f"{NO_TRANSPORT.format('active messages')}",
    "ucx-no-such-device": "[1795759853.140835] [vm1:414  :0]     ucp_context.c:1381 UCX  WARN  network device 'rxe9:1' is "
    f"not available, please use one or more of: 'eth0'(tcp), 'lo'(tcp), 'rxe0:1'(ib)\n{NO_TRANSPORT.format('active messages')}",
    "ucx-peer-does-not-answer": "[vm1:617  :0:617]       ud_ep.c:296  Fatal: UD endpoint 0x55ce521e9530 to <no debug data>: "
    "unhandled timeout error\n",
    "ucx-no-auxiliary-transport": NO_TRANSPORT.format("auxiliary"),
    "mpich-ucx-registration": f"{UCX}ibv_reg_mr(address=0x7f, length=8192, access=0xf) failed: Cannot allocate memory\nAbort(1) on node 0 (rank 0 in comm 0): Fatal error in internal_Send: Other MPI error, error stack:\ninternal_Send(1): MPI_Send failed\nMPIDI_UCX_send(205): returned failed request in UCX netmod(ucx_send.h 205 MPIDI_UCX_send Input/output error)",
    "nccl-shm-too-small": NCCL.format(
        "misc/shmutils.cc:87",
        "Error: failed to extend /dev/shm/nccl-a to 9637892 bytes, error: Call to posix_fallocate failed : No space left on device",
        2,
    ),
    "nccl-message-truncated": NCCL.format(
        "transport/net_socket.cc:424", "NET/Socket : message truncated : receiving 8 bytes instead of 4", 3
    ),
    "ucc-mixed-vendors": "[1.2] [n1:7 :0] x.c:1 UCC  INFO  Cuda: {0..inf}:TL_UCP:10\n[1.2] [n1:7 :0] x.c:1 UCC  INFO  Rocm: {0..inf}:TL_UCP:10\n[rank 1] ucc_collective_init(&c,&r,t) failed: Operation is not supported (-1)",
    "rccl-no-code-object": NCCL.format("init.cc:1", "HIP failure 'invalid device function'", 1)
    + "\nn1:7:9 [0] NCCL INFO RCCL version 2.20",
    "hip-xnack": "hipErrorNoBinaryForGpu: Unable to find code object for all current devices! xnack+\n" + ENDED,
    "gloo-loopback": PYTHON.format(
        "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error; connect: Connection refused, remote=[127.0.0.1]:5555"
    ),
    "nccl-no-aws-libfabric": NCCL.format("net.cc:1", "Error: network AWS Libfabric not found.", 3),
    "nccl-watchdog-slingshot": "n1:7:9 [0] NCCL INFO Using network AWS Libfabric\n[rank0]:[E1120 12:28:14.5 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.",
    "cray-no-gtl": "MPIDI_CRAY_init: GPU_SUPPORT_ENABLED is requested, but GTL library is not linked",
    "ucx-handler-failed": crash("address not mapped", "/usr/lib/libnvrtc.so.12(+0x1)"),
    "openmpi-nbc-device-memory": crash("invalid permissions for mapped object", "/usr/lib/libopen-pal.so.40(+0x1)")
    + "\n 9  /usr/lib/mca_coll_libnbc.so(NBC_Progress+0x1) [0x7f04]",
    "cray-nic-policy": "MPICH ERROR [Rank 0] Unable to use a NIC_POLICY of 'NUMA'. Rank 0 is not confined to a single NUMA node\n"
    + ENDED,
    "cxi-event-queue": "cxil_map: Cassini Event Queue overflow detected.\n" + ENDED,
    "openmpi-host-copy-of-device-memory": "[n1][[52113,1],0][btl_tcp_frag.c:119:mca_btl_tcp_frag_send] mca_btl_tcp_frag_send: writev error (0x35dde18, 8)\n\tBad address(1)\n"
    + ENDED,
    "openmpi-wrong-hwloc": "[n1:09057] [[48500,0],1] FORCE-TERMINATE AT Data unpack would read past end of buffer:-26 - error grpcomm_direct.c(359)",
    "openmpi-daemon-not-found": "bash: line 1: orted: command not found",
    "nccl-duplicate-gpu": NCCL.format(
        "init.cc:1", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000", 5
    ),
    "gpu-ipc-hidden": "Error opening IPC Memhandle from peer:1, invalid argument\n" + ENDED,
    "ucx-rocm-rendezvous": "rocm\n[n1:7  :0:7]  rndv_mtype.inl:34   Assertion `lanes_count > 0' failed",
    "ucx-no-thread-multiple": "[n1:00741] pml_ucx.c:300 UCP worker does not support MPI_THREAD_MULTIPLE\n[n1:00741] PML ucx cannot be selected",
    "torch-mpi-device": "tensor(1., device='cuda:1')\n"
    + crash("invalid permissions", "/usr/lib/libmpi.so.40(+0x1)")
    + "\n 9  /x/libtorch_cpu.so(_ZN4c10d15ProcessGroupMPI7runLoopEv+0x1) [0x7f04]",
    "torch-mpi-not-gpu-aware": "RuntimeError: CUDA tensor detected and the MPI used doesn't have CUDA-aware MPI support",
    "nccl-watchdog": "[rank0]:[E1120 12:28:14.5 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.",
    "nccl-refused": NCCL.format("socket.cc:1", "Connect to 10.0.0.1<4711> failed : Connection refused", 2),
    "ucx-earlier-gpu-fault": f"{UCX}cuMemcpyAsync() failed: an illegal memory access was encountered\n[n1:7:0:7]          dt.c:57   Fatal: mem type unpack failed to uct_ep_put_short() Input/output error",
    "ucx-gpu-pointer-taken-for-host": crash(
        "invalid permissions for mapped object at address 0x7f3", "/usr/lib/libuct.so.0(uct_tcp_ep_am_short+0x5b)"
    ),
    "ofi-nccl-security-group": "n1:7:9 [0] x.c:1 NCCL WARN NET/OFI Unable to insert remote address into address vector for device 0. RC: -1\n"
    + ENDED,
    "ofi-nccl-no-vni": "n1:7:9 [0] x.c:1 NCCL WARN NET/OFI Couldn't open a fabric access domain. RC: -38, ERROR: Function not implemented\n"
    + ENDED,
    "ofi-nccl-host-libraries": "libfabric:7:1::cxi:domain:cxip_domain_enable():1<warn> Failed to find valid default rgroup and vni for cxi0\nn1:7:9 [0] x.c:1 NCCL WARN NET/OFI Couldn't open a fabric access domain. RC: -38, ERROR: Function not implemented\n"
    + ENDED,
    "pals-no-vni": "n1: start failed on n1: No VNIs available in internal allocator",
    "ucx-frozen": crash("address not mapped to object at address 0x18", "./app(f+0x1)")
    + "\n[n1:7  :0:7] Process frozen...",
    "torch-dataloader-shm": PYTHON.format(
        "RuntimeError: DataLoader worker (pid 192) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory."
    ),
    "torch-unused-parameters": PYTHON.format(
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one."
    ),
    "torch-no-mpi": PYTHON.format("RuntimeError: Distributed package doesn't have MPI built in."),
    "no-nvidia-driver": PYTHON.format("RuntimeError: Found no NVIDIA driver on your system."),
    "no-rocm-device": NCCL.format("init.cc:1", "HIP failure 'no ROCm-capable device is detected'", 1),
    "mpi4py-uncaught": PYTHON.format("KeyError: 'x'\nAbort is in progress...hit ctrl-c again to forcibly terminate"),
    "shm-too-small": f"{UCX}  Not enough memory to write total of 4292720 bytes. Please check that /dev/shm or the directory you specified has more available memory.\n{ENDED}",
    "openmpi-ob1-early-message": "[n2:00206] *** Process received signal ***\n[n2:00206] Signal: Segmentation fault (11)\n[n2:00206] Signal code: Address not mapped (1)\n[n2:00206] Failing at address: 0xe0\n[n2:00206] [ 0] /lib/libc.so.6(+0x3c050)[0x7f57]\n[n2:00206] [ 1] /opt/openmpi-5/lib/libmpi.so.40(mca_pml_ob1_recv_frag_callback_match+0x95)[0x7f58]\n[n2:00206] [ 2] /opt/openmpi-5/lib/libopen-pal.so.80(opal_progress+0x84)[0x7f59]\n[n2:00206] [ 3] /opt/openmpi-5/lib/libmpi.so.40(ompi_mpi_init+0x425)[0x7f5a]\n[n2:00206] *** End of error message ***",
    "openmpi-root": "mpirun has detected an attempt to run as root.",
    "openmpi-slots": "There are not enough slots available in the system to satisfy the 16",
    "openmpi-lone-ranks": "$ mpirun -np 2 ./a.out\nHello from rank 0 of 1\nHello from rank 0 of 1",
    "out-of-memory-kill": "hetgpu: out of memory on n1: the kernel's OOM killer ended 1 process of its control group (oom_kill in /sys/fs/cgroup/memory.events)",
    "killed-from-outside": "mpirun noticed that process rank 1 with PID 0 on node n1 exited on signal 9 (Killed).",
    "ucx-rendezvous-key-versions": f"{UCX}failed to unpack remote key from remote md[0]: Unsupported operation\n{ENDED}",
}
# Facts that the log of a failure leaves open, and a line that proves them.
OPEN = {
    "ucx-gpu-pointer-taken-for-host": ("device", "using device cuda:0"),
    "openmpi-nbc-device-memory": ("device", "rank 0 has a GPU"),
    "openmpi-host-copy-of-device-memory": ("device", "rank 0 has a GPU"),
    "ofi-nccl-security-group": ("efa", "NET/OFI Selected provider is efa, fabric is efa"),
    "ofi-nccl-no-vni": ("slingshot", "NET/OFI Selected provider is cxi, fabric is cxi on cxi0"),
    "nccl-watchdog-slingshot": ("slingshot", "NCCL_SOCKET_IFNAME set to hsn0"),
    "cray-nic-policy": ("torch", "import torch"),
}
NOISE = {
    "openmpi-cma-forbidden": "[n1:00852] Read -1, expected 33554432, errno = 1",
    "torch-ipv6-noise": "[W1120 12:00:00 socket.cpp:464] [c10d] The IPv6 network addresses of (n1, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
    "pmix-dstore-noise": "[n1:1] PMIX ERROR: PMIX_ERR_NOT_FOUND in file dstore_base.c at line 1567",
    "ucx-debug-noise": "[n1:01539] common_ucx.c:342 tcp/ens5: did not match transport list",
    "verbs-drivers-missing": "libibverbs: Warning: couldn't load driver 'librxe-rdmav34.so': librxe-rdmav34.so: cannot open shared object file: No such file or directory",
}


@pytest.mark.parametrize("name", LOGS)
def test_the_failure_is_known(tmp_path: Path, name: str) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"rank 0: starting\n{LOGS[name]}\n")
    found = explain(log, known_failures())
    assert found.signature, found.outcome
    assert name in [known.id for known in found.known], (found.signature.key, found.signature.primary_line)


@pytest.mark.parametrize("log", ["ob1-send", "sm-send", "sm-allreduce"])
def test_an_open_mpi_without_cuda_was_given_memory_of_a_gpu(log: str) -> None:
    found = explain(LAB_LOGS / f"h200-openmpi5-{log}.log", known_failures())
    assert [known.id for known in found.known] == ["openmpi-host-copy-of-device-memory"]


@pytest.mark.parametrize("name", OPEN)
def test_a_cause_that_the_log_does_not_prove_is_possible(tmp_path: Path, name: str) -> None:
    log, (wanted, proof) = tmp_path / "a.log", OPEN[name]
    log.write_text(f"rank 0: starting\n{LOGS[name]}\n")
    (possible,) = [known for known in explain(log, known_failures()).known if known.id == name]
    assert possible.certainty == "possible"
    assert any(wanted in fact for fact in possible.unproven)
    log.write_text(f"{proof}\n{LOGS[name]}\n")
    (proven,) = [known for known in explain(log, known_failures()).known if known.id == name]
    assert (proven.certainty, proven.unproven) == (proven.status, ())


def test_a_crash_without_a_stack_may_come_from_a_small_bar(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(LOGS["ucx-no-large-bar-bare"])
    (possible,) = explain(log, known_failures()).known
    assert [fact.rpartition(" (")[2] for fact in possible.unproven] == ["memory: rocm)", "large_bar: no)"]


def test_a_domain_that_cannot_be_opened_on_slingshot_has_two_remedies(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(LOGS["ofi-nccl-host-libraries"])
    found = {known.id: known for known in explain(log, known_failures()).known}
    assert found.keys() == {"ofi-nccl-no-vni", "ofi-nccl-host-libraries"}
    assert "VNI" in found["ofi-nccl-no-vni"].fix
    assert "Bind the host's libfabric and libcxi" in found["ofi-nccl-host-libraries"].fix


@pytest.mark.parametrize("name", NOISE)
def test_noise_is_named_and_no_failure(tmp_path: Path, name: str) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"rank 0: starting\n{NOISE[name]}\nrank 0: done\n")
    found = explain(log, known_failures())
    assert found.outcome.value == "passed"
    (noise,) = [noise for noise in found.noise if noise.entry.id == name]
    assert noise.text in NOISE[name]
    assert noise.quote.strip(".") in NOISE[name]
    assert len(noise.quote) > 20


KILLED = LOGS["killed-from-outside"]


@pytest.mark.parametrize(
    "why",
    [
        "hetgpu: out of memory on n1: the kernel's OOM killer ended 1 process of its control group (oom_kill in /x)",
        "hetgpu: out of memory on this machine: the kernel's OOM killer ended 1 process of this machine (oom_kill in /x)",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.",
        "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "[ 77.1] Memory cgroup out of memory: Killed process 77 (python) total-vm:1kB, anon-rss:1kB",
        PYTHON.format("MemoryError"),
        crash("address not mapped to object at address 0x18", "./app(f+0x1)"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_where_the_log_tells_why_a_rank_was_killed_nobody_has_to_guess(tmp_path: Path, why: str, first: bool) -> None:
    log = tmp_path / "a.log"
    log.write_text("\n".join(("rank 0: starting", *((why, KILLED) if first else (KILLED, why)))))
    assert "killed-from-outside" not in [known.id for known in explain(log, known_failures()).known]


def test_what_a_kill_did_to_others_does_not_tell_why(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"rank 0: starting\n[n2:00007] tcp: Connection reset by peer (104)\n{KILLED}\n")
    assert [known.id for known in explain(log, known_failures()).known] == ["killed-from-outside"]


def test_every_shipped_entry_is_tried() -> None:
    assert known_failures().by_id.keys() == LOGS.keys() | NOISE.keys()
