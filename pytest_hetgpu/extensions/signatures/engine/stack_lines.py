"""Frames of stacks as tools print them: gdb (and gstack, pstack, mpirun's own call of it), py-spy, faulthandler."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from pytest_hetgpu.extensions.signatures.engine.places import StackFrame
from pytest_hetgpu.extensions.signatures.engine.stacks import Position, position_of
from pytest_hetgpu.model.lazy_regex import lazy

_LONGEST = 2000

# gdb's print_frame (gdb/stack.c): `#4  0x... in PMPI_Recv () from /lib/libmpi.so.40`, `#0  main (c=1) at app.c:49`.
_GDB = lazy(
    r"\s{0,8}#(?P<number>\d{1,4})\s{1,3}(?:0x[0-9a-f]{1,16} in )?(?P<name>[^\s(][^(]{0,300}(?:\(\))?)"
    r" ?\(.{0,1500}?\)(?: at (?P<file>\S{1,500}):(?P<line>\d{1,7})| from (?P<library>\S{1,500}))?\s*$"
)
# eu-stack of elfutils (src/stack.c): `#1 0x00007f1 PMPI_Recv - /lib/libmpi.so.40`; frames without a symbol are skipped.
_EU = lazy(
    r"\s{0,8}#(?P<number>\d{1,4})\s{1,3}0x[0-9a-f]{1,16}(?: - \d)?\s{1,8}(?P<name>[\w:~.@$]{1,300})"
    r"(?: - (?P<library>/\S{1,500}))?\s*$"
)
# py-spy's print_trace (src/dump.rs): `    train (hang.py:8)`, `    PMPI_Recv (libmpi.so.40)`.
_SPY = lazy(r"\s{2,8}(?P<name>\S.{0,300}?) \((?P<file>[^():\s]{1,500}|<[^<>]{1,200}>)(?::(?P<line>\d{1,7}))?\)\s*$")
# Modules/faulthandler.c and Python/traceback.c: `  File "hang.py", line 8 in train`.
_FAULTHANDLER = lazy(r'\s{2,8}File "(?P<file>[^"]{1,500})", line (?P<line>\d{1,7}|\?\?\?) in (?P<name>.{1,300}?)\s*$')


def gdb_frame(text: str) -> StackFrame | None:
    """Return a frame of gdb or eu-stack, None for other text."""
    text = text[:_LONGEST]
    if "#" not in text[:12]:
        return None
    found = _GDB.match(text) or _EU.match(text)
    if found is None:
        return None
    groups = found.groupdict()
    name = groups["name"].strip().partition("@")[0]
    return StackFrame(
        name, library=groups["library"] or "", file=groups.get("file") or "", line=int(groups.get("line") or 0)
    )


def frame_number(text: str) -> int:
    """Return the number of a gdb frame, -1 for other text."""
    found = re.match(r"\s{0,8}#(\d{1,4})\s", text)
    return int(found[1]) if found else -1


def spy_frame(text: str) -> StackFrame | None:
    """Return a frame of py-spy's text, None for other text."""
    found = _SPY.match(text[:_LONGEST])
    if found is None:
        return None
    if found["line"] is None and (".so" in found["file"] or not found["file"].endswith((".py", ".pyx", ">"))):
        return StackFrame(found["name"], library=found["file"])
    return StackFrame(found["name"], file=found["file"], line=int(found["line"] or 0), python=True)


def faulthandler_frame(text: str) -> StackFrame | None:
    """Return a frame of faulthandler, None for other text."""
    found = _FAULTHANDLER.match(text[:_LONGEST])
    if found is None:
        return None
    line = int(found["line"]) if found["line"].isdigit() else 0
    return StackFrame(found["name"], file=found["file"], line=line, python=True)


def gdb_threads(text: str) -> dict[int, list[StackFrame]]:
    """Return the threads that gdb printed, by the kernel's id (0 for a program without threads)."""
    threads: dict[int, list[StackFrame]] = {}
    tid = 0
    for line in text.splitlines():
        if head := GDB_THREAD.match(line):
            tid = int(head["tid"])
        elif frame := gdb_frame(line):
            if frame_number(line) == 0:
                threads[tid] = []
            threads.setdefault(tid, []).append(frame)
    return threads


def merged(spied: Sequence[StackFrame], native: Sequence[StackFrame]) -> list[StackFrame]:
    """Merge py-spy's Python frames with gdb's native frames that are deeper than the interpreter's."""
    inner = itertools.takewhile(lambda frame: not _INTERPRETER.search(f"{frame.function} {frame.library}"), native)
    outer = itertools.dropwhile(lambda frame: not frame.python, spied)
    return [*inner, *outer]


_INTERPRETER = lazy(r"^_?Py[A-Z_]\w*|^cfunction_\w+|^method_vectorcall\w*|libpython")

GDB_THREAD = lazy(
    r"\s{0,8}(?:Thread (?P<ordinal>\d{1,6}) \(|TID (?=\d{1,8}:))(?:Thread 0x[0-9a-f]{1,16} )?"
    r"(?:\(?(?:LWP|process) )?(?P<tid>\d{1,8})\)?(?: \"(?P<name>[^\"]{1,64})\")?\)?:"
)


def main_thread(threads: Mapping[int, Sequence[StackFrame]], pid: int) -> Sequence[StackFrame]:
    """Return the thread that shows the process's position: the main one, unless only another waits in MPI."""
    if not threads:
        return ()
    main = threads.get(pid) or threads[min(threads)]
    if position_of(main).call:
        return main
    for frames in threads.values():
        if position_of(frames).call.startswith("MPI"):
            return frames
    return main


def position(threads: Mapping[int, Sequence[StackFrame]], pid: int, **known: object) -> Position:
    """Return the position of a process with these threads."""
    return position_of(main_thread(threads, pid))._replace(pid=pid, **known)  # type: ignore[arg-type]
