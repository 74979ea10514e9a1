"""Real logs (made with Open MPI 4.1.4, 4.1.8 and 5.0.11, UCX 1.13 to 1.20), each with its expected signature."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.logs.parse import read_evidence
from pytest_hetgpu.model.outcome import Evidence
from pytest_hetgpu.model.records import RankExit

LOGS = Path(__file__).parents[2] / "data" / "logs"
SHORT_SEND = "SIGSEGV@libuct.so!uct_tcp_ep_am_short"

# Fault of rank 1 -> expected result for the log of each stack and transport.
SIGNATURES = {
    "openmpi5-ob1-raise": "error ValueError@e.py",
    "openmpi5-ucx-raise": "error ValueError@e.py",
    "openmpi5-ob1-exit": "error MPI_Abort@3",
    "openmpi5-ucx-exit": "error MPI_Abort@3",
    "openmpi5-ob1-hard-exit": "error exit@3",
    "openmpi5-ucx-hard-exit": "error exit@3",
    "openmpi4-ob1-hard-exit": "error exit@3",
    "openmpi4-ucx-hard-exit": "error exit@3",
    "openmpi5-ob1-segv": "crash SIGSEGV@python",
    "openmpi5-ucx-segv": "crash SIGSEGV@python",
    "openmpi4-ob1-segv": "crash SIGSEGV@python",
    "openmpi5-ob1-late-segv": "crash SIGSEGV@python",
    "openmpi5-ucx-late-segv": "crash SIGSEGV@python",
    "openmpi5-ob1-abort": "crash SIGABRT@python",
    "openmpi5-ucx-abort": "crash SIGABRT@python",
    "openmpi4-ob1-kill": "crash SIGKILL",
    "openmpi4-ucx-kill": "crash SIGKILL",
    "openmpi5-ucx-kill": "crash SIGKILL",
    # prterun blames the rank that noticed, and has no exit of the other one.
    "openmpi5-ob1-kill": "error peer-lost@openmpi",
    "openmpi5-ob1-silent": "error peer-lost@openmpi",
    "openmpi5-ucx-silent": "error no-finalize@mpirun",
    "openmpi4-ob1-silent": "error no-finalize@mpirun",
    # mpirun's own text about MPI_Abort got lost.
    "openmpi4-ob1-exit": "network_failure Connection-reset-by-peer@mca_btl_tcp_recv_blocking",
    "openmpi5-ob1-mpi-abort": "error MPI_Abort@5",
    "openmpi5-ucx-mpi-abort": "error MPI_Abort@5",
    "openmpi4-ob1-mpi-abort": "error MPI_Abort@5",
    # A send from memory the host may not read.
    "openmpi5-ob1-guarded": "error Bad-address@mca_btl_tcp_frag_send",
    "openmpi4-ob1-guarded": "error Bad-address@mca_btl_tcp_frag_send",
    "openmpi5-ucx-guarded": f"crash {SHORT_SEND}",
    "openmpi4-ucx-guarded": f"crash {SHORT_SEND}",
    "openmpi5-ucx-guarded-4k": "error tcp_ep-send-failed-Input-output-error@ucx",
    # Transports that are not there.
    "openmpi5-ucx-no-rocm": "transport_unavailable no-transport@ucx",
    "openmpi5-ucx-self-only": "transport_unavailable no-transport@ucx",
    "openmpi5-ucx-no-rdma": "transport_unavailable no-device@ucx",
    "openmpi5-no-pml": "transport_unavailable no-component@pml",
    "openmpi5-wrong-pml": "transport_unavailable no-component@ucxx",
    "openmpi5-wrong-btl": "transport_unavailable no-component@tcpp",
    "openmpi5-wrong-interface": "transport_unavailable unreachable@openmpi",
    "openmpi4-wrong-interface": "transport_unavailable unreachable@openmpi",
    # Ranks that never ran.
    "openmpi5-run-as-root": "launch_failure run-as-root@mpirun",
    "openmpi5-no-slots": "launch_failure no-slots@mpirun",
    "openmpi5-no-executable": "launch_failure no-program@heat3d",
    "openmpi5-env-no-program": "launch_failure no-program@nosuchpython",
    "openmpi5-cannot-open": "launch_failure no-program@python",
    "openmpi5-no-program": "launch_failure no-program@python",
    "openmpi4-no-program": "launch_failure no-program@python",
    "openmpi5-launcher-aborts": "launch_failure no-program@python",
    "openmpi5-no-host": "launch_failure no-host@ssh",
    "openmpi4-no-host": "launch_failure no-host@ssh",
    "openmpi5-crossed": "launch_failure failed@MPI_Init!ompi_rte_init",
    "debian-exec-format": "launch_failure exec@Exec-format-error",
    "openmpi5-no-library": "missing_library missing-library@libanswer.so.1",
    "openmpi5-no-module": "missing_library missing-module@torch_ucc_missing",
    # Texts of programs and libraries.
    "openmpi5-memory": "out_of_memory _ArrayMemoryError@mem.py",
    "debian-shm-full": "out_of_memory no-space@dev-shm",
    "openmpi5-time-limit": "timeout time-limit@mpirun",
    "openmpi5-truncate": "error MPI_ERR_TRUNCATE@MPI_Recv",
    "openmpi5-truncate-fatal": "error MPI_ERR_TRUNCATE@MPI_Recv",
    "openmpi4-truncate-fatal": "error MPI_ERR_TRUNCATE@MPI_Recv",
    "openmpi5-interleaved": "error MPI_ERR_TRUNCATE@MPI_Recv",
    # Backtraces of both handlers, together and alone.
    "debian-read-only-buffer": "crash SIGSEGV@libucp.so!ucp_tag_recv_nbx",
    "debian-gdb-attached": "crash SIGSEGV@heat2d!compute_flux",
    "debian-bus-error": "crash SIGBUS@heat2d!compute_flux",
    "debian-assertion": "crash SIGABRT@heat2d!check_state",
    "debian-bad-free": "crash SIGABRT@heat2d!main",
    "debian-no-symbol": "crash SIGSEGV@libopen-pal.so",
    "debian-no-frames": "crash SIGSEGV",
    "debian-smashed-stack": "crash SIGABRT@stack-smashing-detected",
    # Two guests with Soft-RoCE: what happens to real nodes.
    "rdma-no-device": "transport_unavailable no-transport@ucx",
    "rdma-memory-lock": "out_of_memory Cannot-allocate-memory@ibv_reg_mr",
    "rdma-blocked": "network_failure unhandled-timeout@ucx",
    "rdma-cgroup": "out_of_memory oom-kill@kernel",
    "rdma-node-lost": "network_failure lost@ssh",
    # An NVIDIA H200: programs that provoke each, started by torchrun.
    "h200-out-of-memory": "out_of_memory OutOfMemoryError@oom.py",
    "h200-no-kernel-image": "gpu_arch_mismatch no-kernel-image@gpu",
    "h200-assert": "error Assert@gpu",
    "h200-illegal-address": "error IllegalAddress@gpu",
    "h200-killed": "crash SIGKILL",
    "h200-stuck": "hang stuck@cudaDeviceSynchronize",
    "h200-duplicate-gpu": "error duplicate-gpu@nccl",
    "h200-xid": "error Xid-31@gpu",
    # The same GPU, its memory given to an Open MPI without CUDA.
    "h200-openmpi5-ucx-send": "crash SIGSEGV@libuct.so!uct_tcp_ep_am_short",
    "h200-openmpi5-ob1-send": "error Bad-address@mca_btl_tcp_frag_send",
    "h200-openmpi5-sm-send": "crash SIGSEGV@libopen-pal.so!opal_convertor_pack",
    "h200-openmpi5-sm-allreduce": "crash SIGSEGV@libopen-pal.so",
    # Nothing to complain of.
    "openmpi5-ob1-passed": "",
    "openmpi5-ucx-passed": "",
    "openmpi5-sm-passed": "",
    "openmpi5-alone": "",
    "openmpi5-stuck": "",
    "debian-benign-cma": "",
}  # fmt: skip


def log(name: str) -> Evidence:
    return read_evidence(LOGS / f"{name}.log")


def test_every_log_has_its_row() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == set(SIGNATURES)


@pytest.mark.parametrize(("name", "read_as"), SIGNATURES.items())
def test_log(name: str, read_as: str) -> None:
    signatures = log(name).signatures
    assert " ".join((signatures[0].kind.value, signatures[0].key) if signatures else ()) == read_as


@pytest.mark.parametrize("name", SIGNATURES)
def test_quoted_lines_stand_where_they_are_said_to(name: str) -> None:
    lines = (LOGS / f"{name}.log").read_bytes().split(b"\n")
    for signature in log(name).signatures:
        assert lines[signature.line - 1].decode(errors="replace").replace("\0", "").strip() == signature.primary_line


@pytest.mark.parametrize("name", SIGNATURES)
def test_keys_hold_nothing_that_varies_nor_what_a_glob_minds(name: str) -> None:
    text = (LOGS / f"{name}.log").read_text(errors="replace")
    varying = set(re.findall(r"0x[0-9a-f]{4,}|:0?(\d{4,})\]|PID (\d+)|\[(\w+):\d+", text))
    words = {word for found in varying for word in found if word} - {"", "0"}
    for signature in log(name).signatures:
        assert not re.search(r"[*?\[\]\s/]|0x[0-9a-f]", signature.key)
        assert not words & set(re.findall(r"\w+", signature.key))


def test_faulting_frame_and_entry_point() -> None:
    crash = log("openmpi5-ucx-guarded").signatures[0]
    assert (crash.signal, crash.library, crash.function) == ("SIGSEGV", "libuct.so.0", "uct_tcp_ep_am_short")
    assert (crash.entry_point, crash.detail) == ("MPI_Send", "invalid permissions")
    assert (crash.ranks, crash.hosts) == ((0,), ("vm",))
    assert crash.primary_line == "[vm:23168] Signal: Segmentation fault (11)"


def test_rank_comes_from_what_the_ranks_said_of_themselves(tmp_path: Path) -> None:
    text = (LOGS / "openmpi5-ucx-guarded.log").read_text()
    (tmp_path / "cut.log").write_text(text[: text.index("prterun noticed")])
    evidence = read_evidence(tmp_path / "cut.log")
    assert evidence.exits == ()
    assert evidence.signatures[0].ranks == (0,)


@pytest.mark.parametrize(
    ("name", "exits"),
    [
        ("openmpi5-ucx-kill", [RankExit(1, signal=9)]),
        ("openmpi5-ob1-hard-exit", [RankExit(1, code=3)]),
        ("openmpi4-ob1-hard-exit", [RankExit(1, code=3)]),
        ("openmpi5-ob1-mpi-abort", [RankExit(1, code=5, aborted=True)]),
        ("openmpi4-ob1-mpi-abort", [RankExit(1, code=5, aborted=True)]),
        ("openmpi5-ucx-silent", [RankExit(1)]),
        ("openmpi4-ob1-silent", [RankExit(1)]),
        ("openmpi5-ob1-guarded", [RankExit(0, aborted=True)]),
        ("openmpi4-ucx-kill", [RankExit(0, code=1, aborted=True), RankExit(1, signal=9)]),
        ("debian-bad-free", [RankExit(2, signal=6)]),
        ("openmpi5-ucx-passed", []),
    ],
)
def test_what_the_launcher_said_of_ranks(name: str, exits: list[RankExit]) -> None:
    assert list(log(name).exits) == exits


@pytest.mark.parametrize(("name", "same_bug"), [("openmpi5-ucx-guarded", True), ("debian-gdb-attached", False)])
def test_keys_outlive_processes_hosts_and_addresses(tmp_path: Path, name: str, same_bug: bool) -> None:
    text = (LOGS / f"{name}.log").read_text()
    moved = re.sub(r"0x7f[0-9a-f]{10}", "0x7e1234567890", text)
    moved = (
        re.sub(r"(?<=:)0?\d{4,5}(?=[\] ])", "7777", moved)
        .replace("[vm:", "[node-17:")
        .replace("/opt/stack", "/usr/lib64")
    )
    moved = moved.replace("libuct.so.0", "libuct.so.0.0.0").replace("libpython3.11.so.1.0", "libpython3.13.so.1.0")
    assert moved != text
    (tmp_path / "moved.log").write_text(moved)
    key = read_evidence(tmp_path / "moved.log").signatures[0].key
    assert key == log(name).signatures[0].key
    assert (key == SHORT_SEND) is same_bug


def test_a_cause_comes_before_what_it_led_to_wherever_that_stands(tmp_path: Path) -> None:
    """Expect the cause first although ranks print at the same time, and the other rank's text may come first."""
    text = (LOGS / "openmpi5-ucx-guarded-4k.log").read_text()
    error = next(line for line in text.splitlines() if "UCX  ERROR" in line)
    (tmp_path / "late.log").write_text(text.replace(error + "\n", "") + error + "\n")
    assert read_evidence(tmp_path / "late.log").signatures[0].key == log("openmpi5-ucx-guarded-4k").signatures[0].key
