"""Versions that libraries print."""

from __future__ import annotations

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.analysis.logs.versions import Versions


def test_each_library_in_its_own_words() -> None:
    versions = Versions()
    for number, text in enumerate(
        (
            "[1.2] [n:1 :0] ucp_context.c:1849 UCX  INFO  Version 1.13.1 (loaded from /lib/libucp.so.0)",
            "[n:1] pml_ucx.c:207 mca_pml_ucx_open: UCX version 1.18.0",
            "[n:1] pml_ucx.c:207 mca_pml_ucx_open: UCX version 1.18.0",
            "[1.2] [n:1 :0] ucc_constructor.c:188  UCC  INFO  version: 1.4.0, loaded from: /usr/lib/libucc.so.1",
            "n:1:1 [0] NCCL INFO NCCL version 2.27.7+cuda13.0",
            "rank 0/2 Open MPI v5.0.11",
            "[0] MPI startup(): Intel(R) MPI Library, Version 2021.18.1  Build 20260626",
            "[0] MPI startup(): libfabric version: 2.4.0-impi",
            "# OSU MPI-CUDA Allgather Latency Test v7.4",
        ),
        1,
    ):
        versions.feed(parse_line(text, number))
    assert versions.found == {
        "ucx": "1.13.1, 1.18.0",
        "ucc": "1.4.0",
        "nccl": "2.27.7",
        "openmpi": "5.0.11",
        "impi": "2021.18.1",
        "libfabric": "2.4.0",
        "osu": "7.4",
    }
