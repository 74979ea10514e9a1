"""The upstream project of a failure, and the file names of its report."""

from __future__ import annotations

import pytest

from pytest_hetgpu.reporting.upstream.projects import file_names, find_project, slug


@pytest.mark.parametrize(
    ("library", "key", "stack", "name"),
    [
        ("libuct_rocm.so.0", "SIGSEGV@libuct_rocm.so!uct_rocm_copy_ep_put_short", "Open MPI 5.0.11", "UCX"),
        (None, "invalid-value@PROTO_INFO", "Open MPI 4.1.8", "UCX"),
        ("libucc.so.1", "SIGSEGV@libucc.so!ucc_init", "Open MPI 5.0.11", "UCC"),
        ("libnccl.so.2", "x", "torch 2.13.0", "NCCL"),
        ("librccl.so.1", "x", "torch 2.13.0", "RCCL"),
        (None, "SIGSEGV@libfabric.so", "MPICH 4.3.2", "libfabric"),
        (None, "Bad-address@mca_btl_tcp_frag_send", "Open MPI 5.0.11", "Open MPI"),
        (None, "no-program@prted", "", "Open MPI"),
        (None, "stuck@Recv+Send", "MPICH 4.3.2", "MPICH"),
        (None, "timeout@allreduce", "torch 2.13.0", "PyTorch"),
        (None, "exit@11", "", ""),
        # A failure of the program itself, whatever words it has.
        (None, "ERROR-Lost-atoms-original-current@program", "Open MPI 4.1.4", ""),
        (None, "ERROR-ucx-grid-of-torch@program", "MPICH 4.3.2", ""),
        (None, "ValueError@train.py!step", "Open MPI 5.0.11", ""),
        (None, "RuntimeError@torch/nn/modules/module.py!f", "Open MPI 5.0.11", "PyTorch"),
        ("lmp", "SIGSEGV@lmp!main", "Open MPI 5.0.11", ""),
        ("libhwloc.so.15", "SIGSEGV@libhwloc.so!f", "Open MPI 5.0.11", "Open MPI"),
    ],
)
def test_the_library_at_fault_decides_then_the_key_then_the_mpi(
    library: str | None, key: str, stack: str, name: str
) -> None:
    assert find_project(library, key, stack).name == name


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("SIGSEGV@libuct.so!uct_tcp_ep_am_short", "SIGSEGV-libuct.so-uct-tcp-ep-am-short"),
        ("../../etc/passwd", "etc-passwd"),
        ("...", "failure"),
        ("x" * 300, "x" * 80),
        ("ä\x00\n", "failure"),
    ],
)
def test_names_of_files_are_harmless(key: str, name: str) -> None:
    assert slug(key) == name


def test_two_keys_of_one_name_are_told_apart() -> None:
    assert file_names(["a@b", "a!b", "a/b"]) == {"a@b": "a-b", "a!b": "a-b-2", "a/b": "a-b-3"}
