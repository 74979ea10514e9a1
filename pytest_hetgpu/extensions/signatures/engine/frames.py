"""Backtraces: frames, which of them is at fault, and the key of a crash."""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority, Process, token
from pytest_hetgpu.extensions.signatures.engine.demangle import function_name, program_name
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST_FRAMES = 200
_LONGEST_FRAME = 4096
_HEAD = 16

# `lib.so(func+0x1f)[0x7f]` of backtrace_symbols (glibc debug/backtracesyms.c), in UCX with a space before the bracket;
# `prog[0x40]` has no symbols.
_SYMBOLS = lazy(r"(?P<path>[^\s()\[\]]+)(?:\((?P<name>[^()]*)\))?\s?\[0x[0-9a-f]+\]\s*$")
_ADDRESS = lazy(r"\[(0x[0-9a-f]+)\]\s*$")
# `0x55077 func()  /path/file.c:57`: UCX built with libbfd (src/ucs/debug/debug.c); inlined calls are frames, too.
_DEBUG = lazy(r"0x[0-9a-f]+ (?P<name>\S.{0,1000}?)\(\)\s+(?P<source>\S+):\d+\s*$")

_SYSTEM = lazy(
    r"(?:libc|libpthread|ld|ld64|ld-linux[\w-]*|ld-musl[\w-]*|libdl|librt|linux-vdso\d*|libgcc_s|libstdc\+\+|libc\+\+(?:abi)?"
    r"|libSegFault|lib[atl]san|libubsan)(?:-\d[\d.]*)?\.so"
)
_RUNTIME = lazy(r"(?:libstdc\+\+|libc\+\+(?:abi)?)\.so")
# Libraries that replace malloc, or hook into it. UCX's libucm patches the calls of every program that loads it.
_ALLOCATOR = lazy(r"lib(?:jemalloc|tcmalloc(?:_minimal|_and_profiler)?|mimalloc|tbbmalloc(?:_proxy)?|ucm)\b.*\.so")
_ALLOCATING = lazy(
    r"(?:__libc_|__interceptor_|je_|tc_|mi_|ucm_|override_ucm_|__GI_(?:__libc_)?)?"
    r"(?:malloc|free|cfree|calloc|realloc|memalign|posix_memalign|aligned_alloc)"
    r"|_int_(?:malloc|free|realloc)|malloc_(?:consolidate|printerr)|unlink_chunk|operator (?:new|delete)(?:\[\])?"
    r"|(?:opal|orte)_mem(?:ory)?_\w+|intercept_(?:munmap|madvise|brk|shmdt|mmap)"
)
_HANDLER = lazy(
    r"ucs_(?:handle_error|fatal_error|error_|debug_|assert|log_)\w* | __ucs_(?:abort|log) | ucs_default_handler"
    r"| show_stackframe | opal_(?:backtrace|util_register_stack)\w* | __?assert(?:_fail\w*|_perror\w*)?"
    r"| (?:__GI_)?_{0,2}(?:abort|raise|gsignal|kill|killpg|tgkill|sigaction|funlockfile|fortify_fail\w*|stack_chk_fail"
    r"|libc_message\w*|libc_fatal) | __?chk_fail | (?:__)?pthread_kill\w* | __restore_rt | __kernel_rt_sigreturn"
    r"| c10::FatalSignalHandler::\w+ | faulthandler_\w+ | std::terminate | __gnu_cxx::__verbose_terminate_handler"
    r"| __cxxabiv1::\w+ | __cxa_(?:throw|rethrow|call_\w+|pure_virtual)"
    r"| google::(?:anonymous|\(anonymous\ namespace\))?:*FailureSignalHandler | PetscSignalHandler\w*",
    re.VERBOSE,
)
# A backtrace printed by libbfd often shows only the function of a glibc frame.
_LIBC_CALL = lazy(
    r"__?(?:mem|str|wcs)\w+?_(?:avx|sse|evex|erms|generic|neon|sve|unaligned|aarch64|asimd)\w*"
    r"|(?:__)?(?:mem(?:cpy|move|set|cmp|chr|pcpy)|str(?:len|cmp|cpy|ncpy|cat|chr|dup|ncmp|tol\w*)|v?f?s?n?printf|qsort\w*)"
    r"(?:_chk|_ifunc)?|__libc_\w+|__GI_\w+|__nss_\w+|start_thread|clone3?|__clone\w*|_start|_dl_\w+|_IO_\w+"
)
_PYTHON = lazy(r"(?:lib)?python[\d.]*[a-z]?(?:\.so)?")
_UNNAMED_BIN = lazy(r"\?+|\(null\)")
_SOURCES = (
    (lazy(r"/src/uct/(cuda|rocm|ib|ze)/"), r"libuct_\1.so"),
    (lazy(r"/src/(uc[tpsm])/"), r"lib\1.so"),
    (lazy(r"/ompi/mca/|/ompi/mpi/"), "libmpi.so"),
    (lazy(r"/opal/"), "libopen-pal.so"),
    (
        lazy(r"glibc|/nptl/|/sysdeps/|^(?:\.\.?/)+(?:csu|debug|elf|io|libio|malloc|misc|posix|signal|stdlib|string)/"),
        "libc.so",
    ),
)
_PREFIXES = (
    (lazy(r"uct_(?:rc|dc|ud|ib|srd)_|uct_mlx5_"), "libuct_ib.so"),
    (lazy(r"uct_(cuda|rocm|ze)_"), r"libuct_\1.so"),
    (lazy(r"(uc[tpsmc])_"), r"lib\1.so"),
    (lazy(r"P?MPI_[A-Z]"), "libmpi.so"),
    (lazy(r"opal_"), "libopen-pal.so"),
)
_ENTRIES = (
    lazy(r"P?MPI_[A-Z]\w*"),
    lazy(r"p?nccl[A-Z]\w*"),
    lazy(r"c10d::(?!\w+::(?:runLoop|ncclCommWatchdog\w*|heartbeatMonitor|\w*[Ww]atchdog\w*)$)\w.*"),
)
_FORTRAN_ENTRY = lazy(r"p?mpi_[a-z]\w*")
_FORTRAN_LIBRARY = lazy(r"libmpi(?:_mpifh|_usempi\w*|fort)\b.*\.so|libfmpich\b.*\.so")
_TOLD_FROM_OUTSIDE = ("SIGTERM", "SIGINT", "SIGHUP")


class Frame(NamedTuple):
    """One frame: the file name that holds it ("" if unknown), and its function.

    `handling` is true for code that prints backtraces, if its source is named.
    """

    library: str
    function: str | None
    handling: bool = False


def parse_frame(text: str) -> Frame | None:
    """Return the frame that a line ends in, in the form of backtrace_symbols or UCX; None for other text."""
    text = text[-_LONGEST_FRAME:]
    found = _SYMBOLS.search(text)
    if found:
        name = (found["name"] or "").partition("+0x")[0].partition("@")[0].lstrip("+")
        return Frame(program_name(found["path"].rpartition("/")[2]), function_name(name) or None)
    found = _DEBUG.search(text)
    if not found:
        return None
    source, name = found["source"], function_name(found["name"])
    unnamed = _UNNAMED_BIN.fullmatch(name)
    return Frame(_library_of(source, name), None if unnamed else name, handling="/ucs/debug/" in source)


def _library_of(source: str, name: str) -> str:
    """Return the library of a frame that names only a source file; "" if neither file nor function is known."""
    found = ((pattern.search(source), library) for pattern, library in _SOURCES)
    named = ((pattern.match(name), library) for pattern, library in _PREFIXES)
    return next((match.expand(library) for match, library in (*found, *named) if match), "")


def library_key(name: str) -> str:
    """Return a library without parts that differ between builds: versions, tags of wheels, hashes of repaired wheels.

    The interpreter is `python`, both in libpython3.11.so.1.0 and in the program itself.
    """
    name = re.sub(r"(\.so)(?:\.\d+)+$", r"\1", name)
    name = re.sub(r"\.(?:cpython|pypy|abi)[\w-]*(?=\.so$)", "", name)
    name = re.sub(r"-[0-9a-f]{8}(?=\.so$)", "", name)
    return "python" if _PYTHON.fullmatch(name) else token(program_name(name))


def faulting(frames: Sequence[Frame]) -> Frame | None:
    """Return the first meaningful frame: past signal handlers, C library, loader and allocators.

    Unnamed frames of libucs right after its handler belong to the handler; after a frame of libc they do not.
    """
    last = max((i for i, frame in enumerate(frames[:_HEAD]) if _handles(frame)), default=-1)
    in_handler = True
    for frame in frames[last + 1 :]:
        if _system(frame):
            in_handler = False
        elif in_handler and not frame.function and library_key(frame.library) == "libucs.so":
            continue
        else:
            return frame
    return None


def died_in(frames: Sequence[Frame]) -> Frame | None:
    """Return the frame in which the process died: the faulting one, or the C++ runtime if that ended the program.

    The runtime's own frame means an uncaught exception; the faulting frame below is its origin.
    """
    fault = faulting(frames)
    below = frames[: frames.index(fault)] if fault in frames else frames
    last = max((i for i, frame in enumerate(frames[:_HEAD]) if _handles(frame)), default=-1)
    runtime = (frame for frame in below[last + 1 :] if _RUNTIME.match(frame.library))
    return next(runtime, fault)


def _handles(frame: Frame) -> bool:
    return frame.handling or bool(_HANDLER.fullmatch(frame.function or ""))


def is_system(library: str) -> bool:
    """Return whether a library is the C or C++ runtime, the loader or an allocator: its caller is at fault."""
    return bool(_SYSTEM.match(library) or _ALLOCATOR.match(library))


def _system(frame: Frame) -> bool:
    if is_system(frame.library):
        return True
    name = frame.function or ""
    return bool(_ALLOCATING.fullmatch(name) or (not frame.library and _LIBC_CALL.fullmatch(name)))


def entry_point(frames: Sequence[Frame]) -> str | None:
    """Return the outermost MPI function on the stack, as printed; else one of NCCL or torch, or a Fortran binding."""
    named = [(frame.function, frame.library) for frame in reversed(frames) if frame.function]
    found = (name for form in _ENTRIES for name, _ in named if form.fullmatch(name))
    bound = (name for name, lib in named if _FORTRAN_ENTRY.fullmatch(name) and _FORTRAN_LIBRARY.match(lib))
    return next(found, None) or next(bound, None)


def signal_name(number: int) -> str:
    """Return a signal's name: `SIGSEGV` for 11; `SIG55` for a number without a name here."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def crash_key(signal: str | None, library: str | None, function: str | None) -> str:
    """Return the key of a crash, `SIGSEGV@libuct.so!uct_tcp_ep_am_short`, without unknown parts."""
    where = library_key(library) if library else ""
    return (signal or "signal") + (f"@{where}" if where else "") + (f"!{token(function)}" if function else "")


def address_of(text: str) -> str:
    """Return the address that a line of backtrace_symbols ends in; "" if there is none."""
    found = _ADDRESS.search(text[-_LONGEST_FRAME:])
    return found[1] if found else ""


def _alike(one: str, other: str) -> int:
    """Return the number of leading characters that two addresses share."""
    differs = (place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differs, min(len(one), len(other)))


class Crash:
    """A signal handler's report on one process; frames come in as the log prints them."""

    def __init__(self, process: Process | None, line: LogLine) -> None:
        self.process = process
        self.rank, self.host = line.rank, line.host
        self.signal: str | None = None
        self.detail: str | None = None
        self.kind = Kind.CRASH
        self.reason = ""  # why a library ended its process, if it says so
        self.frames: list[Frame] = []
        self.places = 0
        self.addresses: list[str] = []
        self.quote(line)

    def quote(self, line: LogLine) -> None:
        """Make this line the quoted line of the crash."""
        self.line, self.number = line.quote, line.number

    def add(self, text: str) -> None:
        """Take a frame's line; other text is ignored."""
        frame = parse_frame(text)
        if frame and len(self.frames) < _MOST_FRAMES:
            self.frames.append(frame)
            self.addresses.append(address_of(text))

    def near(self, text: str) -> int:
        """Return how well a frame's address matches those taken before: a process's libraries are near each other."""
        address = address_of(text)
        return max((_alike(one, address) for one in self.addresses[-_HEAD:]), default=0)

    def build_match(self) -> FailureMatch:
        """Return the crash as a match.

        A frame of the interpreter itself gives no function, as static builds show others.
        """
        fault, frame = faulting(self.frames), died_in(self.frames)
        library, function = _named(frame)
        named = _named(fault)
        signature = Signature(
            kind=self.kind,
            key=crash_key(self.signal, *named) if named[1] or not self.reason else self.reason,
            primary_line=self.line,
            line=self.number,
            signal=self.signal,
            detail=self.detail,
            library=library,
            function=function,
            entry_point=entry_point(self.frames),
            ranks=() if self.rank is None else (self.rank,),
            hosts=tuple(self._hosts()),
        )
        priority = Priority.CONSEQUENCE if self.signal in _TOLD_FROM_OUTSIDE else Priority.CAUSE
        return FailureMatch(signature, priority, self.process)

    reading = build_match

    def _hosts(self) -> Iterator[str]:
        if self.process or self.host:
            yield self.process[0] if self.process else str(self.host)


def _named(frame: Frame | None) -> tuple[str | None, str | None]:
    """Return library and function of a frame; the interpreter's own functions differ between builds."""
    if frame is None:
        return None, None
    return frame.library or None, frame.function if library_key(frame.library) != "python" else None
