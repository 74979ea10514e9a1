"""Crashes by the frames of core files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hetgpu.analysis.logs.parse import read_evidence
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.verdict import Kind

DETAIL = "invalid permissions for mapped object"
PLACE = "at 0x7f00 in anonymous memory (---)"
HEAD = f"hetgpu: core: pid 77 on vm died of SIGSEGV ({DETAIL}) {PLACE}"
MEMCPY = "#0  __memcpy_avx512_unaligned_erms () at ../sysdeps/x86_64/multiarch/memmove-vec-unaligned-erms.S:273"
SEND = "#3  0x00007f03 in PMPI_Send_c () from /opt/mpich/lib/libmpi.so.12"
PYTHON = "#4  PyObject_Vectorcall (callable=..., args=...) at Objects/call.c:299"
UNNAMED = "#1  0x00007f01 in ?? () from /opt/mpich/lib/{}"
HYDRA = """\
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 77 RUNNING AT vm
=   EXIT CODE: 139
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)
"""


def first(tmp_path: Path, *lines: str, before: str = HYDRA) -> Signature:
    path = tmp_path / "some.log"
    path.write_text(before + "\n".join((lines[0], *(f"hetgpu: core: {line}" for line in lines[1:]))) + "\n")
    return read_evidence(path).signatures[0]


@pytest.mark.parametrize(
    ("frames", "key", "function"),
    [
        ((MEMCPY, UNNAMED.format("libuct.so.0"), SEND), "SIGSEGV@libuct.so", None),
        ((MEMCPY, UNNAMED.format("libmpi.so.12"), SEND), "SIGSEGV@libmpi.so!PMPI_Send_c", "PMPI_Send_c"),
        (
            ("#0  0x01 in handler () from /opt/libx.so", "#1  <signal handler called>", MEMCPY, SEND),
            "SIGSEGV@libmpi.so!PMPI_Send_c",
            "PMPI_Send_c",
        ),
        ((PYTHON,), "SIGSEGV@python", None),
    ],
)
def test_the_faulting_frame(tmp_path: Path, frames: tuple[str, ...], key: str, function: str | None) -> None:
    found = first(tmp_path, HEAD, *frames)
    assert (found.kind, found.key, found.function, found.signal) == (Kind.CRASH, key, function, "SIGSEGV")
    assert found.detail == f"{DETAIL} {PLACE}"
    assert found.hosts == ("vm",)


def test_the_call_that_the_program_made(tmp_path: Path) -> None:
    assert first(tmp_path, HEAD, MEMCPY, UNNAMED.format("libuct.so.0"), SEND).entry_point == "PMPI_Send_c"


def test_the_report_of_a_handler_keeps_its_key(tmp_path: Path) -> None:
    handler = (
        "[vm:00077] *** Process received signal ***\n[vm:00077] Signal: Segmentation fault (11)\n"
        "[vm:00077] [ 0] /lib/libc.so.6(+0x3c050)[0x7fa9bde5a050]\n"
        "[vm:00077] [ 1] /opt/lib/libfabric.so.1(+0xa658f)[0x7fa9b803658f]\n"
        "[vm:00077] *** End of error message ***\n"
    )
    path = tmp_path / "some.log"
    path.write_text(f"{handler}{HEAD}\nhetgpu: core: {MEMCPY}\nhetgpu: core: {SEND}\n")
    found = read_evidence(path).signatures
    assert [one.key for one in found] == ["SIGSEGV@libfabric.so"]


@pytest.mark.parametrize("text", ["hetgpu: core: nonsense", f"hetgpu: core: {SEND}", HEAD.replace("SIGSEGV", "?")])
def test_other_text_is_no_crash(tmp_path: Path, text: str) -> None:
    path = tmp_path / "some.log"
    path.write_text(f"{text}\n")
    assert read_evidence(path).signatures == ()
