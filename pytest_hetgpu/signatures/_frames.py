"""Backtraces: frames, which of them is at fault, and the key of a crash."""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_hetgpu.evidence import Signature
from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures.base import Process, Reading, quoted, token

_MOST_FRAMES = 200
_LONGEST_FRAME = 2000
_HEAD = 16

# `lib.so(func+0x1f)[0x7f]` of backtrace_symbols, in UCX with a space before the bracket; `prog[0x40]` has no symbols.
_SYMBOLS = re.compile(r"(?P<path>[^\s()\[\]]+)(?:\((?P<name>[^()]*)\))?\s?\[0x[0-9a-f]+\]\s*$")
# `0x55077 func()  /path/file.c:57`: UCX built with libbfd.
_DEBUG = re.compile(r"0x[0-9a-f]+ (?P<name>\S.*?)\(\)\s+(?P<source>\S+):\d+\s*$")

_SYSTEM = re.compile(
    r"(?:libc|libpthread|ld|ld-linux[\w-]*|libdl|librt|linux-vdso|libgcc_s|libstdc\+\+)(?:-\d[\d.]*)?\.so"
)
_HANDLER = re.compile(
    r"ucs_(?:handle_error|fatal_error|error_|debug_|assert|log_)\w* | show_stackframe | __assert_fail\w*"
    r"| (?:__GI_)?(?:abort|raise|gsignal|kill) | (?:__)?pthread_kill\w* | __restore_rt | __funlockfile",
    re.VERBOSE,
)
_PYTHON = re.compile(r"(?:lib)?python[\d.]*[a-z]?(?:\.so)?")
_ENTRY = re.compile(r"P?MPI_[A-Z]\w*")
_CLONE = re.compile(r"\.(?:part|isra|constprop|cold|lto_priv)(?:\.\d+)*$")
_SOURCES = (
    (re.compile(r"/src/uct/(cuda|rocm|ib|ze)/"), r"libuct_\1.so"),
    (re.compile(r"/src/(uc[tpsm])/"), r"lib\1.so"),
    (re.compile(r"/ompi/mca/|/ompi/mpi/"), "libmpi.so"),
    (re.compile(r"/opal/"), "libopen-pal.so"),
    (re.compile(r"glibc|/nptl/|/sysdeps/"), "libc.so"),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: the file it lies in as printed but for its folder ("" where unknown), and its function."""

    library: str
    function: str | None


def parse_frame(text: str) -> Frame | None:
    """The frame that a line ends in, in backtrace_symbols' or in UCX's form; None for other text."""
    text = text[-_LONGEST_FRAME:]
    found = _SYMBOLS.search(text)
    if found:
        name = (found["name"] or "").partition("+0x")[0].partition("@")[0]
        return Frame(found["path"].rpartition("/")[2], name.lstrip("+") or None)
    found = _DEBUG.search(text)
    return Frame(_library_of(found["source"]), found["name"]) if found else None


def _library_of(source: str) -> str:
    for pattern, library in _SOURCES:
        match = pattern.search(source)
        if match:
            return match.expand(library)
    return ""


def library_key(name: str) -> str:
    """A library without what differs between builds: versions, Python's tags, the hashes of repaired wheels.

    The interpreter is `python`, whether its code lies in libpython3.11.so.1.0 or in the program itself.
    """
    name = re.sub(r"(\.so)(?:\.\d+)+$", r"\1", name)
    name = re.sub(r"\.(?:cpython|pypy|abi)[\w-]*(?=\.so$)", "", name)
    name = re.sub(r"-[0-9a-f]{8}(?=\.so$)", "", name)
    return "python" if _PYTHON.fullmatch(name) else token(name)


def faulting(frames: Sequence[Frame]) -> Frame | None:
    """The first meaningful frame: past signal handlers, the C library, and the code of UCX that prints backtraces."""
    last = max((i for i, frame in enumerate(frames[:_HEAD]) if _HANDLER.fullmatch(frame.function or "")), default=-1)
    in_handler = True
    for frame in frames[last + 1 :]:
        if _SYSTEM.match(frame.library):
            in_handler = False
        elif in_handler and not frame.function and library_key(frame.library) == "libucs.so":
            continue
        else:
            return frame
    return None


def entry_point(frames: Sequence[Frame]) -> str | None:
    """The outermost MPI function on the stack, as printed."""
    return next((f.function for f in reversed(frames) if f.function and _ENTRY.fullmatch(f.function)), None)


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11; `SIG55` for a number that has no name here."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"SIG{number}"


class Crash:
    """A signal handler's report on one process; frames come in as the log prints them."""

    def __init__(self, process: Process | None, line: str, number: int) -> None:
        self.process = process
        self.line = quoted(line)
        self.number = number
        self.signal: str | None = None
        self.detail: str | None = None
        self.frames: list[Frame] = []
        self.address = ""

    def add(self, text: str) -> None:
        """Take a frame's line; other text is ignored."""
        frame = parse_frame(text)
        if frame and len(self.frames) < _MOST_FRAMES:
            self.frames.append(frame)

    def reading(self) -> Reading:
        """The crash as a signature. A frame of the interpreter itself names no function: static builds show others."""
        frame = faulting(self.frames)
        library = library_key(frame.library) if frame else ""
        function = _CLONE.sub("", frame.function) if frame and frame.function and library != "python" else None
        where = (f"@{library}" if library else "") + (f"!{token(function)}" if function else "")
        signature = Signature(
            kind=Kind.CRASH,
            key=(self.signal or "signal") + where,
            primary_line=self.line,
            line=self.number,
            signal=self.signal,
            detail=self.detail,
            library=(frame.library or None) if frame else None,
            function=function,
            entry_point=entry_point(self.frames),
            hosts=(self.process[0],) if self.process else (),
        )
        return Reading(signature, process=self.process)
