"""Core files of local jobs: facts in them, and that none is left."""

from __future__ import annotations

import io
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.logs.parse import read_evidence
from pytest_hetgpu.extensions.package_data import REMOTE
from pytest_hetgpu.extensions.runtimes.local import Local
from pytest_hetgpu.extensions.runtimes.process import cores
from pytest_hetgpu.extensions.runtimes.process.core_file import CoreFacts, read_core
from pytest_hetgpu.model.job import Command

FILE = "/tmp/job/segment"


def note(kind: int, data: bytes) -> bytes:
    return struct.pack("<III", 5, len(data), kind) + b"CORE\0\0\0\0" + data + b"\0" * (-len(data) % 4)


def core(number: int, code: int, address: int, flags: int = 6) -> bytes:
    """A core file with one mapping of anonymous memory at 0x1000 and one of a file at 0x3000."""
    information = struct.pack("<iiiiQ", number, 0, code, 0, address) + bytes(104)
    files = struct.pack("<QQQQQ", 1, 4096, 0x3000, 0x4000, 0) + f"{FILE}\0".encode()
    notes = note(0x53494749, information) + note(0x46494C45, files)
    at = 64 + 3 * 56
    segments = [
        (4, 0, at, 0, 0, len(notes), 0, 4),
        *((1, flags, 0, start, 0, 0, 0x1000, 1) for start in (0x1000, 0x3000)),
    ]
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, 3, 0, 0, 0)
    return head + b"".join(struct.pack("<IIQQQQQQ", *one) for one in segments) + notes


@pytest.mark.parametrize(
    ("number", "code", "address", "flags", "facts"),
    [
        (11, 2, 0x1008, 0, ("SIGSEGV", "invalid permissions for mapped object", 0x1008, "anonymous memory (---)", "")),
        (11, 1, 8, 6, ("SIGSEGV", "address not mapped to object", 8, "no mapping", "")),
        (7, 2, 0x3010, 6, ("SIGBUS", "nonexistent physical address", 0x3010, f"{FILE} (rw-)", FILE)),
        (11, -6, 0x3010, 6, ("SIGSEGV",)),
        (6, -6, 77, 6, ("SIGABRT",)),
    ],
)
def test_facts_of_a_core_file(number: int, code: int, address: int, flags: int, facts: tuple[object, ...]) -> None:
    assert read_core(io.BytesIO(core(number, code, address, flags))) == CoreFacts(*facts)  # type: ignore[arg-type]


@given(st.one_of(st.binary(), st.integers(0, 400).map(lambda cut: core(11, 1, 8)[:cut])), st.binary())
def test_no_file_makes_it_raise(data: bytes, more: bytes) -> None:
    read_core(io.BytesIO(data + more))


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("|/usr/lib/systemd/systemd-coredump %P", "hands core files to a program"),
        ("/var/crash/core.%p", "does not write core files into the working folder"),
        ("", "does not write core files into the working folder"),
    ],
)
def test_why_there_are_none(tmp_path: Path, pattern: str, why: str) -> None:
    (tmp_path / "core_pattern").write_text(f"{pattern}\n")
    assert why in cores.obstacle(tmp_path / "core_pattern")
    assert "cannot be read" in cores.obstacle(tmp_path / "missing")


def test_without_gdb_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "core_pattern").write_text("core\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cores.obstacle(tmp_path / "core_pattern") == "gdb is not installed"


def run(tmp_path: Path, body: str) -> tuple[str, Path]:
    """Run a program of this package's kind; return why no core file was read, and its output."""
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys\nsys.path.insert(0, {str(REMOTE)!r})\nimport cores, os, ctypes\ncores.prepare()\n{body}"
    )
    output = tmp_path / "output.log"
    result = Local().run(Command((sys.executable, str(program)), {}), output=output, timeout=60)
    return result.frameless, output


@pytest.fixture
def readable(lacking: Callable[[str, str], None]) -> None:
    """Core files can be read on this machine."""
    if why := cores.obstacle():
        lacking("cores", why)


def test_a_crash_has_a_frame(readable: None, tmp_path: Path) -> None:
    why, output = run(tmp_path, "print(os.getcwd(), flush=True)\nctypes.memset(8, 0, 8)\n")
    assert why == ""
    folder, *rest = output.read_text().splitlines()
    assert rest[1].startswith("hetgpu: core: pid ")
    assert "died of SIGSEGV (address not mapped to object) at 0x8 in no mapping" in rest[1]
    (found,) = read_evidence(output).signatures
    assert found.key.startswith("SIGSEGV@")
    assert found.library
    assert not Path(folder).exists()


@pytest.mark.parametrize("handler", ["[n1:%05d] [ 0] /lib/libc.so.6(+0x1)[0x2]", "==== backtrace (tid:%7d) ===="])
def test_a_backtrace_of_the_process_in_the_log_is_enough(readable: None, tmp_path: Path, handler: str) -> None:
    crash = "ctypes.memset(8, 0, 8)\n"
    why, output = run(tmp_path, f"print({handler!r} % os.getpid(), flush=True)\n{crash}")
    assert (why, len(output.read_text().splitlines())) == ("", 1)
    why, output = run(tmp_path, f"print({handler!r} % (os.getpid() + 1), flush=True)\n{crash}")
    assert (why, "hetgpu: core: " in output.read_text()) == ("", True)


def test_a_program_that_fails_otherwise_says_why_there_is_no_frame(readable: None, tmp_path: Path) -> None:
    why, output = run(tmp_path, "sys.exit(3)\n")
    assert why == "no process of the job wrote a core file"
    assert output.read_text() == ""


def test_relative_paths_keep_the_working_folder(
    readable: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UCX_LOG_FILE", "ucx.log")
    _, output = run(tmp_path, "print(os.getcwd())\n")
    assert output.read_text() == f"{tmp_path}\n"
    assert shutil.which("gdb")


def test_full_places_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_FULL", 1 << 60)
    first, *_ = cores.full_places({"TMPDIR": str(tmp_path)})
    assert first.startswith(f"TMPDIR {tmp_path} has ")
    monkeypatch.setattr(cores, "_FULL", 0)
    assert cores.full_places({"TMPDIR": str(tmp_path)}) == ()
    assert cores.full_places({"TMPDIR": str(tmp_path / "gone")}) == ()
