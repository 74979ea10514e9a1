"""Frames: their forms, which is at fault, and the key it gives."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.signatures.base import LogLine
from pytest_hetgpu.extensions.signatures.engine.frames import Crash as Report
from pytest_hetgpu.extensions.signatures.engine.frames import (
    Frame,
    entry_point,
    faulting,
    library_key,
    parse_frame,
    signal_name,
)

LIBC = "/lib/x86_64-linux-gnu/libc.so.6(+0x3c050)[0x7f09d68cc050]"


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("[vm:1] [ 2] /x/libuct.so.0(uct_tcp_ep_am_short+0xa7)[0x7fbc1]", Frame("libuct.so.0", "uct_tcp_ep_am_short")),
        (" 3  /x/libucp.so.0(ucp_tag_send_nbx+0x3c4) [0x7fbc1]", Frame("libucp.so.0", "ucp_tag_send_nbx")),
        ("[vm:1] [ 0] /lib/libc.so.6(+0x3c050)[0x7fbc1]", Frame("libc.so.6", None)),
        ("24  /test_allreduce() [0x201f8c]", Frame("test_allreduce", None)),
        ("[vm:1] [ 4] ./a.out[0x400b2d]", Frame("a.out", None)),
        (" 7  ./heat2d(main+0x478) [0x5595]", Frame("heat2d", "main")),
        (
            " 0 0x0000000000055077 ucp_mem_type_unpack()  /b/ucx-1/src/ucp/dt/dt.c:57",
            Frame("libucp.so", "ucp_mem_type_unpack"),
        ),
        (
            " 1 0x1 uct_rocm_copy_ep_put_short()  /b/src/uct/rocm/copy/rocm_copy_ep.c:9",
            Frame("libuct_rocm.so", "uct_rocm_copy_ep_put_short"),
        ),
        (" 2 0x1 uct_tcp_ep_am_short()  /b/src/uct/tcp/tcp_ep.c:9", Frame("libuct.so", "uct_tcp_ep_am_short")),
        (" 3 0x1 __funlockfile()  ???:0", Frame("", "__funlockfile")),
        ("[vm:1] Failing at address: 0x7fbc153f6000", None),
        ("hello 0", None),
        ("", None),
    ],
)
def test_forms(text: str, frame: Frame | None) -> None:
    assert parse_frame(text) == frame


def test_a_line_without_end_costs_nothing() -> None:
    assert parse_frame("x" * 100_000 + " [0x") is None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("libuct.so.0.0.0", "libuct.so"),
        ("libpython3.11.so.1.0", "python"),
        ("python3.13", "python"),
        ("python", "python"),
        ("libtorch_python.so", "libtorch_python.so"),
        ("MPI.openmpi.cpython-311-x86_64-linux-gnu.so", "MPI.openmpi.so"),
        ("_core.abi3.so", "_core.so"),
        ("libscipy_openblas64_-ff651d7f.so", "libscipy_openblas64_.so"),
        ("heat2d", "heat2d"),
    ],
)
def test_library_keys(name: str, key: str) -> None:
    assert library_key(name) == key


UCS = Frame("libucs.so.0", "ucs_handle_error")
UNNAMED = Frame("libucs.so.0", None)
SYSTEM = Frame("libc.so.6", None)
REAL = Frame("libucp.so.0", "ucp_tag_send_nbx")


@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        ([SYSTEM, SYSTEM, REAL], REAL),
        ([UCS, UNNAMED, UNNAMED, SYSTEM, REAL], REAL),
        ([UCS, UNNAMED, UNNAMED, REAL], REAL),
        ([UCS, Frame("libucs.so.0", "ucs_fatal_error_message"), Frame("libucs.so.0", "ucs_fatal_error_format"), REAL], REAL),
        ([SYSTEM, Frame("libc.so.6", "raise"), Frame("libc.so.6", "abort"), UNNAMED, Frame("libucs.so.0", "ucs_fatal_error_format"), REAL], REAL),
        ([SYSTEM, Frame("ld-linux-x86-64.so.2", None), Frame("libstdc++.so.6", "_ZSt9terminatev"), REAL], REAL),
        # A crash in libucs itself is libucs's.
        ([SYSTEM, UNNAMED, REAL], UNNAMED),
        ([UCS, UNNAMED, SYSTEM, Frame("libucs.so.0", "ucs_mpool_get"), REAL], Frame("libucs.so.0", "ucs_mpool_get")),
        ([UCS, UNNAMED, UNNAMED], None),
        ([SYSTEM], None),
        ([], None),
    ],
)  # fmt: skip
def test_faulting_frame(frames: list[Frame], fault: Frame | None) -> None:
    assert faulting(frames) == fault


def test_entry_point_is_the_outermost() -> None:
    inner, outer = Frame("libmpi.so.40", "PMPI_Send"), Frame("libmpi.so.40", "MPI_Allreduce")
    assert entry_point([REAL, inner, outer, Frame("a.out", "main")]) == "MPI_Allreduce"
    assert entry_point([REAL, Frame("a.out", "MPI_"), Frame("a.out", "mca_pml_ucx_send")]) is None


@pytest.mark.parametrize(
    ("frame", "key"),
    [
        ("/x/libuct.so.0(uct_tcp_ep_am_short.part.0+0xa7)[0x1]", "SIGSEGV@libuct.so!uct_tcp_ep_am_short"),
        ("/x/libpython3.11.so.1.0(PyObject_Vectorcall+0x33)[0x1]", "SIGSEGV@python"),
        ("/usr/bin/python3.13(+0x1234)[0x1]", "SIGSEGV@python"),
        ("/usr/bin/python3.13() [0x4f8d3a]", "SIGSEGV@python"),
        ("0x1 frobnicate()  /home/me/frob.c:7", "SIGSEGV!frobnicate"),
        (LIBC, "SIGSEGV"),
    ],
)
def test_crash_keys(frame: str, key: str) -> None:
    report = Report(("vm", 1), LogLine("[vm:1] Signal: Segmentation fault (11)", 1))
    report.signal = signal_name(11)
    report.add(LIBC)
    report.add(frame)
    assert report.build_match().signature.key == key


def test_signals_without_a_name_have_their_number() -> None:
    assert (signal_name(11), signal_name(55)) == ("SIGSEGV", "SIG55")
