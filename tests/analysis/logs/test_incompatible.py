"""Warnings of libraries about versions that do not fit, as they print them, and lines that are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.judge import judge
from pytest_hetgpu.analysis.logs.parse import read_evidence
from pytest_hetgpu.analysis.logs.versions import MOST
from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser
from pytest_hetgpu.model.verdict import Kind, Verdict
from tests.analysis.judges.judge_cases import evidence, job, result

UCP = (
    "[1795742646.261739] [vm:5463 :0]     ucp_context.c:2190 UCX  WARN  UCP API version is incompatible: "
    "required >= 1.20, actual 1.17.0 (loaded from /opt/ucx/lib/libucp.so.0)"
)
MISFIT = "UCX: UCP API version is incompatible: required >= 1.20, actual 1.17.0 (loaded from /opt/ucx/lib/libucp.so.0)"


def warnings(folder: Path, *lines: str) -> tuple[str, ...]:
    log = folder / "output.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    return read_evidence(log).incompatible


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        (UCP, MISFIT),
        (
            "libfabric:2301:1716:core:core:ofi_register_provider():514<warn> provider has unsupported FI version "
            "(provider 1.6 != libfabric 1.22); ignoring",
            "libfabric: provider has unsupported FI version (provider 1.6 != libfabric 1.22); ignoring",
        ),
        (
            '[n1:77] pmix_mca_base_component_repository_open: psec "munge" uses an MCA interface that is not '
            "recognized (component MCA v2.1.0 != supported MCA v2.2.0) -- ignored",
            'MCA: "munge" uses an MCA interface that is not recognized (component MCA v2.1.0 != supported MCA v2.2.0) '
            "-- ignored",
        ),
        (
            "n1:9:9 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin symbol (>= v5). ncclNetPlugin symbols v4 "
            "and lower are not supported.",
            "NCCL: NET/Plugin: Failed to find ncclNetPlugin symbol (>= v5). ncclNetPlugin symbols v4 and lower are not "
            "supported.",
        ),
        (
            "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).",
            "CUDA: The NVIDIA driver on your system is too old (found version 11040).",
        ),
        (
            "n1:9:9 [0] NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'",
            "CUDA: CUDA driver version is insufficient for CUDA runtime version",
        ),
        (
            "<frozen importlib._bootstrap>:241: RuntimeWarning: mpi4py.MPI.Comm size changed, may indicate binary "
            "incompatibility. Expected 32 from C header, got 24 from PyObject",
            "Python: mpi4py.MPI.Comm size changed, may indicate binary incompatibility. Expected 32 from C header, got "
            "24 from PyObject",
        ),
        (
            "WARNING: HIP runtime API version mismatch: built 6.2, found 5.7",
            "a library: HIP runtime API version mismatch: built 6.2, found 5.7",
        ),
    ],
)
def test_what_a_library_prints(tmp_path: Path, line: str, warning: str) -> None:
    assert warnings(tmp_path, "hello", line, line) == (warning,)


@pytest.mark.parametrize(
    "line",
    [
        "my solver: restart file version mismatch is handled, going on",
        "checked: no binary incompatibility",
        "UCX  INFO  Version 1.17.0 (loaded from /opt/ucx/lib/libucp.so.0)",
        "n1:9:9 [0] NCCL WARN NET/IB : No device found.",
        "n1:9:9 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
    ],
)
def test_what_is_no_such_warning(tmp_path: Path, line: str) -> None:
    assert warnings(tmp_path, line) == ()


def test_ranks_and_lines_are_many_and_texts_few(tmp_path: Path) -> None:
    lines = [UCP.replace("5463", str(rank)).replace("1.17.0", f"1.{rank}") for rank in range(2 * MOST)]
    assert len(warnings(tmp_path, *lines)) == MOST


def test_the_version_that_does_not_fit_is_the_version_in_use() -> None:
    reader = MpiTransportParser()
    reader.feed(UCP, 1)
    assert reader.versions == {"ucx": "1.17.0"}


def test_it_is_a_warning_of_the_cell_and_the_verdict_under_strict_preflight() -> None:
    asked, seen = job(), evidence(incompatible=(MISFIT,))
    loose = judge(asked, result(), seen)
    assert (loose.kind, loose.verdict, loose.concerns) == (Kind.PASSED, Verdict.OK, (MISFIT,))
    strict = judge(replace(asked, demand=replace(asked.demand, strict=True)), result(), seen)
    assert (strict.kind, strict.why) == (Kind.MISSING_LIBRARY, f"a version does not fit: {MISFIT}")
