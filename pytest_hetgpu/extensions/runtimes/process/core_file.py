"""Facts in the notes of a core file: the signal, the faulting address, and the mapping at that address.

The layout is that of Linux for 64-bit little-endian machines (fs/binfmt_elf.c, include/uapi/linux/elf.h). Pure.
"""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

_MAGIC = b"\x7fELF\x02\x01"
_ET_CORE, _PT_LOAD, _PT_NOTE = 4, 1, 4
_NT_SIGINFO, _NT_FILE, _NT_PRPSINFO, _NT_AUXV = 0x53494749, 0x46494C45, 3, 6
_PID_AT = 24  # of struct elf_prpsinfo (include/linux/elfcore.h)
_AT_ENTRY = 9  # include/uapi/linux/auxvec.h: where the program begins
_HEADER, _SEGMENT = struct.Struct("<16xH14xQ14xHH"), struct.Struct("<IIQQQQQQ")
_MOST_SEGMENTS, _MOST_NOTES = 65_535, 8 << 20
# Words of UCX (src/ucs/debug/debug.c) for codes of the kernel.
_CODES = {
    (signal.SIGSEGV, 1): "address not mapped to object",
    (signal.SIGSEGV, 2): "invalid permissions for mapped object",
    (signal.SIGBUS, 1): "invalid address alignment",
    (signal.SIGBUS, 2): "nonexistent physical address",
    (signal.SIGBUS, 3): "object-specific hardware error",
}
_WITH_ADDRESS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


@dataclass(frozen=True, slots=True)
class CoreFacts:
    """The end of a process.

    `mapping` describes the memory at `address`: `anonymous memory (---)`, `/tmp/x (rw-)`, `no mapping`. `file` is the
    mapped file, "" for other memory. `address` is None for signals without one. `program` is the path of the process's
    program, "" if the file does not show it.
    """

    signal: str
    detail: str = ""
    address: int | None = None
    mapping: str = ""
    file: str = ""
    pid: int | None = None
    program: str = ""


def read_core(core: BinaryIO) -> CoreFacts | None:
    """Read the facts of a core file; return None for another file, or one without the kernel's signal information."""
    try:
        segments = list(_segments(core))
        notes = dict(note for segment in segments if segment[0] == _PT_NOTE for note in _notes(core, segment))
        return _facts(notes, segments)
    except (struct.error, ValueError, OverflowError, OSError):
        return None


_Segment = tuple[int, int, int, int, int, int, int, int]


def _segments(core: BinaryIO) -> Iterator[_Segment]:
    head = core.read(_HEADER.size)
    if not head.startswith(_MAGIC):
        return
    kind, offset, size, count = _HEADER.unpack(head)
    if kind != _ET_CORE or size != _SEGMENT.size or count >= _MOST_SEGMENTS:
        return
    core.seek(offset)
    for _ in range(count):
        yield _SEGMENT.unpack(core.read(_SEGMENT.size))


def _notes(core: BinaryIO, segment: _Segment) -> Iterator[tuple[int, bytes]]:
    core.seek(segment[2])
    data = core.read(min(segment[5], _MOST_NOTES))
    at = 0
    while at + 12 <= len(data):
        name, size, kind = struct.unpack_from("<III", data, at)
        start = at + 12 + (name + 3 & ~3)
        yield kind, data[start : start + size]
        at = start + (size + 3 & ~3)


def _facts(notes: dict[int, bytes], segments: list[_Segment]) -> CoreFacts | None:
    if _NT_SIGINFO not in notes:
        return None
    number, code, address = struct.unpack_from("<i4xi4xQ", notes[_NT_SIGINFO])
    name = signal.Signals(number).name
    pid, program = _pid(notes.get(_NT_PRPSINFO, b"")), _program(notes)
    # A positive code is the kernel's; another process's signal has no address.
    if number not in _WITH_ADDRESS or code <= 0:
        return CoreFacts(name, pid=pid, program=program)
    flags = next((one[1] for one in segments if one[0] == _PT_LOAD and one[3] <= address < one[3] + one[6]), None)
    file = next((path for start, end, path in _files(notes.get(_NT_FILE, b"")) if start <= address < end), "")
    rights = "".join(letter if flags and flags & bit else "-" for letter, bit in zip("rwx", (4, 2, 1), strict=True))
    mapping = "no mapping" if flags is None and not file else f"{file or 'anonymous memory'} ({rights})"
    return CoreFacts(name, _CODES.get((signal.Signals(number), code), ""), address, mapping, file, pid, program)


def _pid(note: bytes) -> int | None:
    return struct.unpack_from("<i", note, _PID_AT)[0] if len(note) >= _PID_AT + 4 else None


def _program(notes: dict[int, bytes]) -> str:
    """Return the file that holds the address at which the program begins."""
    auxiliary = notes.get(_NT_AUXV, b"")
    pairs = dict(struct.iter_unpack("<QQ", auxiliary[: len(auxiliary) // 16 * 16]))
    entry = pairs.get(_AT_ENTRY, 0)
    return next((path for start, end, path in _files(notes.get(_NT_FILE, b"")) if start <= entry < end), "")


def _files(note: bytes) -> Iterator[tuple[int, int, str]]:
    if len(note) < 16:
        return
    count, _ = struct.unpack_from("<QQ", note)
    names = note[16 + 24 * count :].split(b"\0")
    for number, name in zip(range(count), names, strict=False):
        start, end, _ = struct.unpack_from("<QQQ", note, 16 + 24 * number)
        yield start, end, name.decode(errors="replace")
