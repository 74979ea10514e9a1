"""Last messages of a process from the C library, libstdc++ or the kernel.

Text printed right before an abort belongs to the report of the signal that follows (see `engine.merge`). If none
follows, it is the only evidence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, Process, slug
from pytest_hetgpu.extensions.signatures.engine.demangle import function_name, program_name
from pytest_hetgpu.extensions.signatures.engine.frames import crash_key, is_system, library_key
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST = 1000
_LONGEST = 4096
_LONGEST_DETAIL = 300
_WHAT_FOLLOWS = 3

# assert/assert.c: `program: file:line: function: Assertion `...' failed.`; the program's name may be missing.
_ASSERTED = lazy(
    r"(?:(?:^|[\s\]>])(?P<program>[\w./+-]{1,200}): )?(?P<file>[\w./+ -]{1,300}):\d{1,7}: "
    r"(?P<function>\S[^`]{0,1000}): (?P<detail>Assertion `.*?' failed)"
)
# assert/assert.c for assert_perror.
_ERRNO = lazy(
    r"(?P<program>[\w./+-]{1,200}): [\w./+ -]{1,300}:\d{1,7}: (?P<function>\S.{0,300}): "
    r"(?P<detail>Unexpected error: .*?)\.?$"
)
# malloc/malloc.c, malloc/hooks.c (malloc_printerr); before glibc 2.26 `*** Error in `prog': text: 0x... ***`.
_HEAP = lazy(
    r"^(?:\*\*\* (?:Error in|glibc detected \*\*\*) [`']?(?P<program>[^'\s:]{1,300})'?: )?"
    r"(?P<detail>(?:double free or corruption|corrupted (?:size vs\. prev_size|double-linked list|unsorted chunks)"
    r"|(?:free|malloc|realloc|calloc|munmap_chunk|mremap_chunk|malloc_consolidate|tcache_thread_shutdown)\(\): "
    r"|malloc: |free: |chunk size mismatch in |break adjusted to free malloc space).{0,120}?)"
    r"(?:: 0x[0-9a-f]+)?(?: \*\*\*)?$"
)
# debug/fortify_fail.c, debug/stack_chk_fail.c and their callers.
_FORTIFIED = lazy(
    r"\*\*\* (?P<detail>(?:stack smashing|buffer overflow|bit out of range|invalid %N\$|%n in writable|longjmp causes|"
    r"invalid open|invalid fdelt)[^*]{0,100}?) \*\*\*(?:: (?P<ended>terminated|(?P<program>\S{1,300}) terminated))?"
)
_FATAL = lazy(
    r"^(?P<detail>(?:The futex facility returned an unexpected error code|Fatal glibc error: (?!CPU)).{0,200}"
    r"|libgcc_s\.so\.1 must be installed for pthread_\w+ to work.{0,40})$"
)
# libstdc++-v3/libsupc++/vterminate.cc and pure.cc, libcxxabi's abort_message.
# MPICH's mpiexec -l labels every piece that a rank writes, so that its label may stand within a line.
_TERMINATED = lazy(
    r"(?P<detail>terminate called (?:after throwing an instance of '(?:\[\d{1,7}\] )?(?P<what>[^']{1,300}?)"
    r"(?:\[\d{1,7}\] )?'"
    r"|without an active exception|recursively)"
    r"|pure virtual method called|libc\+\+abi: terminating (?:(?:due to|with) uncaught exception of type "
    r"(?P<type>[\w:<>, *]{1,200}?)(?:: (?P<message>.{0,200}))?$|.{0,200}))"
)
_WHAT = lazy(r"^\s*what\(\): +(?:\[\d{1,7}\] )?(?P<what>\S.*?)(?:\[\d{1,7}\] )?$")

# arch/x86/mm/fault.c (show_signal_msg) and arch/x86/kernel/traps.c (show_signal), arch/arm64/kernel/traps.c.
_KERNEL = lazy(
    r"(?:(?P<host>[A-Za-z][\w.-]*) kernel: )?(?:\[\s*\d+\.\d+\] )?(?:traps: )?"
    r"(?P<program>[^\s\[\]]{1,64})\[(?P<pid>\d+)\]:? (?P<what>segfault at [0-9a-f]+ ip|general protection"
    r"|trap (?:divide error|invalid opcode|stack segment|int3|bounds)"
    r"|unhandled (?:level \d|[\w ]{1,40}) \(?(?:translation|permission|alignment)? ?fault)"
    r".{0,200}?(?: in (?P<library>[\w.+-]{1,200})\[|$)"
)
_TRAPS = (("divide", "SIGFPE"), ("opcode", "SIGILL"), ("stack seg", "SIGBUS"), ("int3", "SIGTRAP"), ("", "SIGSEGV"))


class _Form(NamedTuple):
    """A pattern that a process's last words match, and words of which such a line holds one."""

    pattern: re.Pattern[str]
    words: tuple[str, ...]


_LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy", "prterun", "prte", "prted", "orterun", "orted")
# glibc's own assertions mean a heap that the program corrupted.
_GLIBCS = ("malloc.c", "arena.c", "hooks.c", "dl-minimal.c", "tpp.c")

_LAST_WORDS = (
    _Form(_ASSERTED, (": Assertion `",)),
    _Form(_ERRNO, (": Unexpected error: ",)),
    _Form(
        _FORTIFIED,
        ("*** stack smashing", "*** buffer overflow", "*** bit out of", "*** invalid ", "*** %n in", "*** longjmp"),
    ),
    _Form(
        _HEAP,
        (
            *("double free or corruption", "corrupted size vs. prev_size", "corrupted double-linked"),
            *("corrupted unsorted", "free(): ", "malloc(): ", "realloc(): ", "munmap_chunk(): ", "mremap_chunk(): "),
            *("malloc_consolidate(): ", "tcache_thread_shutdown(): ", "chunk size mismatch in "),
            "break adjusted to free malloc",
        ),
    ),
    _Form(_FATAL, ("The futex facility returned", "Fatal glibc error: ", "libgcc_s.so.1 must be installed")),
)


class Glibc(LogParser):
    """Parser of abort messages: one match per process; the kernel's messages have a lower priority."""

    triggers = (
        *(word.encode() for form in _LAST_WORDS for word in form.words),
        b"terminate called ",
        b"pure virtual method called",
        b"libc++abi: terminating",
        b"what():",
        b"]: segfault at ",
        b"] general protection",
        b"] trap ",
        b"]: unhandled ",
    )

    def __init__(self) -> None:
        self._matches: list[FailureMatch] = []
        self._thrown: dict[int | None, tuple[int, int]] = {}

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        said = (form.pattern.search(text) for form in _LAST_WORDS if any(word in text for word in form.words))
        if found := next(filter(None, said), None):
            self._add(_died(found.groupdict(), line))
        elif found := _TERMINATED.search(text):
            self._terminated(found, line)
        elif found := _WHAT.match(text):
            self._what(found["what"], line)
        elif found := _KERNEL.search(text):
            self._add(_trapped(found, line))

    def _add(self, match: FailureMatch) -> None:
        if len(self._matches) < _MOST:
            self._matches.append(match)

    def _terminated(self, found: re.Match[str], line: LogLine) -> None:
        """Take an uncaught exception; torch's own repeat what its log printed before."""
        what = found["what"] or found["type"] or ""
        match = _died({"detail": what or found["detail"]}, line)
        if found["message"]:
            match = _detailed(match, found["message"])
        if what.endswith(("bad_alloc", "length_error")) and "bad_alloc" in what:
            key, kind = "bad_alloc@libstdc", Kind.OUT_OF_MEMORY
            match = replace(match, signature=replace(match.signature, key=key, kind=kind))
        relayed = what.startswith(("c10::", "torch::"))
        self._thrown[line.rank] = (len(self._matches), line.number)
        self._add(replace(match, priority=Priority.RELAYED) if relayed else match)

    def _what(self, what: str, line: LogLine) -> None:
        """Take the `what():` of the exception just named by the same process."""
        place, number = self._thrown.pop(line.rank, (0, -_WHAT_FOLLOWS - 1))
        if line.number - number <= _WHAT_FOLLOWS and place < len(self._matches):
            self._matches[place] = _detailed(self._matches[place], what)

    def finish(self) -> Sequence[FailureMatch]:
        return tuple(self._matches)


def _died(said: Mapping[str, str | None], line: LogLine) -> FailureMatch:
    """Return an abort with its message; without a frame in the program, the message is the key."""
    detail = (said.get("detail") or "").strip().rstrip(".")
    own = said.get("file") not in _GLIBCS
    program = program_name((said.get("program") or "").rpartition("/")[2])
    library = program if own and said.get("function") else ""
    function = (own and function_name(said.get("function") or "")) or None
    key = crash_key("SIGABRT", library, function) if function else f"SIGABRT@{slug(detail)}"
    signature = Signature(
        Kind.CRASH,
        key,
        line.quote,
        line.number,
        signal="SIGABRT",
        detail=detail.removeprefix("Assertion `").removesuffix("' failed")[:_LONGEST_DETAIL],
        library=library or None,
        function=function,
        ranks=() if line.rank is None else (line.rank,),
        hosts=(line.host,) if line.host else (),
    )
    # A launcher may crash over its own report: PRRTE 3 over a rank that could not be started.
    return FailureMatch(signature, Priority.RELAYED if program in _LAUNCHERS else Priority.CAUSE)


def _detailed(match: FailureMatch, message: str) -> FailureMatch:
    detail = f"{match.signature.detail}: {message}"[:_LONGEST_DETAIL]
    return replace(match, signature=replace(match.signature, detail=detail))


def _trapped(found: re.Match[str], line: LogLine) -> FailureMatch:
    """Return a trap in the kernel's log.

    The log also holds old traps, so this counts only if another match proves a failure.
    """
    signal = next(signal for words, signal in _TRAPS if words in found["what"])
    library = program_name(found["library"] or "") or None
    library = None if library and is_system(library) else library
    named = line.host if line.host != "kernel" else None
    host = (found["host"] or named or "").split(".")[0]
    process: Process | None = (host, int(found["pid"])) if host else None
    key = f"{signal}@{library_key(library or found['program'])}"
    hosts = (host,) if host else ()
    signature = Signature(
        Kind.CRASH, key, line.quote, line.number, signal=signal, library=library, hosts=hosts, detail=found["what"][:60]
    )
    return FailureMatch(signature, Priority.RELAYED, process, fatal=False)
