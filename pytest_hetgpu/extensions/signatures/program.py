"""Messages of programs that give up, for exits without other explanation: `ERROR: ...`, `giving up`, `f() failed: `.

Programs use their own texts. Matched are customary forms (`_messages.programs`) and errors of the C library
(`_messages.errnos`). Such a line counts only if another match proves a failure, or if it is the last line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_hetgpu.extensions.signatures._messages.errnos import WORDS, errno, kind_of
from pytest_hetgpu.extensions.signatures._messages.mpich_classes import NO_MEMORY, OTHERS_DEATH, error_class
from pytest_hetgpu.extensions.signatures._messages.programs import (
    ASSERTED,
    CALL,
    CLASS_ALONE,
    ERROR_CLASS,
    GIVING_UP,
    GONE,
    NOISE,
    NOT_A_CALL,
    OUT_OF_MEMORY,
    OUT_OF_TIME,
)
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, slug
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST = 200
_LONGEST = 1000
_FAR = 2000
_FAR_FOR_AN_ERRNO = 200
_FEWEST_LETTERS = 3

# One of these stands in every line that the slower pattern of its name finds.
_CALLED = ("MPI", "nccl", "ucc_")
_MEMORY = ("memory", "alloc", "reserve ")
_TIMES = ("budget", "limit", "quota")

# Lines of libraries, of which there may be hundreds of thousands (`NOISE` has them, too).
_LIBRARYS = lazy(r"^\[\d{6,}\.\d+\] \[|\b(?:UCX|UCC) +[A-Z]+ |\bNCCL (?:INFO|WARN|TRACE) ")
_LETTER = lazy(r"[A-Za-z]")
_RANK = lazy(r"\b(?:[Rr]ank|[Pp]rocess|[Pp]roc|PE|[Tt]ask)[ :#=]{0,2}(?P<rank>\d{1,7})\b|^\[(?P<bare>\d{1,7})\]")
_UNSUPPORTED = lazy(r"\bucc_\w+\(.*failed: (?:Operation is not supported|Not (?:supported|found))")

# After these the program prints nothing more.
_ENDS = ("MPI_ABORT was invoked", "exited with", "BAD TERMINATION", "exit code", "exiting improperly")


@dataclass(slots=True)
class _ErrorLine:
    """A message of one process or several: the first line that holds it, and the last that is equal."""

    line: LogLine
    last: int
    kind: Kind = Kind.ERROR
    priority: Priority = Priority.RELAYED
    far: int = _FAR
    entry: str | None = None
    fatal: bool = False
    ranks: list[int] = field(default_factory=list)


class Program(LogParser):
    """Parser of messages that precede a launcher's report of the exit, but no match that names a cause."""

    triggers = (
        b"ERROR:",
        b"ERROR ",
        b"ERROR!",
        b"Error:",
        b"Error in ",
        b"Error!",
        b"rror: ",
        b"FATAL",
        b"Fatal",
        b"fatal error",
        b"CRITICAL",
        b"PANIC",
        b"MFEM abort",
        b"Verification failed: (",
        b"CmiAbort",
        b"ABORT:",
        b"ABORT!",
        b"iving up",
        b"cannot continue",
        b"an't continue",
        b"ailing out",
        b"borting",
        b"xiting",
        b"erminating",
        b"topping",
        b"uitting",
        *(b"ssert%b %b" % (end, fail) for end in (b"", b"ion") for fail in (b"fail", b"Fail", b"FAIL")),
        b"ASSERT",
        b"[rank ",
        b"[Rank ",
        b"failed with error",
        b"returned error",
        b"must be run ",
        b"must match ",
        b"requires exactly ",
        b"requires at least ",
        b"ust be a ",
        b"panic: ",
        b"panicked at",
        b"Exception in thread",
        b"amrex::",
        b"!!!",
        b"REFUSE TO CONTINUE",
        b"VERY BAD NEWS",
        b"[ABORT]",
        b"Throw test that",
        b"HDF5-DIAG: Error",
        b"nhandled exception",
        b"ncaught exception",
        b"STOP ",
        b"ut of memory",
        b"alloc failed",
        b"alloc of ",
        b" allocate ",
        b" reserve ",
        b" budget",
        b"ime limit",
        b"clock limit",
        b"llocation failed",
        b"nough memory",
        b"nsufficient memory",
        b"MPI_ERR_",
        b"error stack",
        b" failed: ",
        b"returned ",
        *(f"{word[1:]}".encode() for word in WORDS),
        *(words.encode() for words in _ENDS),
    )

    def __init__(self) -> None:
        self._said: dict[str, _ErrorLine] = {}
        self._end = 0

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        if not self._end and any(words in text for words in _ENDS):
            self._end = line.number
        if called := _called(text, line):
            self._add(*called, line)
            return
        # A line beyond the limit need not be parsed.
        if len(self._said) >= _MOST and _key(text) not in self._said:
            return
        if said := _gave_up(text, line):
            self._add(_key(text), said, line)

    def _add(self, key: str, said: _ErrorLine, line: LogLine) -> None:
        if key not in self._said and len(self._said) >= _MOST:
            return
        known = self._said.setdefault(key, said)
        if known.line.text == line.text:
            known.last = line.number
        named = _RANK.search(line.text[:_LONGEST])
        rank = int(named["rank"] or named["bare"]) if named else line.rank
        if rank is not None and len(known.ranks) < _MOST:
            known.ranks.append(rank)

    def finish(self) -> Sequence[FailureMatch]:
        return tuple(self._match(key, said) for key, said in self._said.items())

    def _match(self, key: str, said: _ErrorLine) -> FailureMatch:
        """Return a message as a match; its priority is lower if the program printed more afterwards.

        Equal lines of other ranks are no such output.
        """
        early = bool(self._end) and self._end - said.line.number > said.far
        signature = Signature(
            said.kind,
            key,
            said.line.quote,
            said.last,
            detail=_told(said.line.text)[:200],
            entry_point=said.entry,
            ranks=tuple(sorted(set(said.ranks))),
            hosts=(said.line.host,) if said.line.host else (),
        )
        priority = max(said.priority, Priority.SYMPTOM) if early else said.priority
        return FailureMatch(signature, priority, fatal=said.fatal)


def _key(text: str) -> str:
    if found := ASSERTED.search(text):
        return f"assert@{found['function']}"
    return f"{slug(_told(text)) or 'error'}@program"


def _called(text: str, line: LogLine) -> tuple[str, _ErrorLine] | None:
    """Return key and text of a call into MPI, NCCL or UCC that the program reports as failed."""
    if not any(part in text for part in _CALLED) or NOT_A_CALL.search(text):
        return None
    if found := CALL.search(text):
        entry, said = found["entry"], found["said"]
        named = ERROR_CLASS.search(said)
        error = named[0] if named else error_class(said.partition(", error stack")[0].strip()) or "failed"
        if error == "failed" and (_UNSUPPORTED.search(text) or "error stack" in said):
            return None
        return f"{error}@{entry.removeprefix('P')}", _of_class(error, line, entry)
    if found := CLASS_ALONE.search(text):
        return f"{found['error']}@MPI", _of_class(found["error"], line, None)
    return None


def _of_class(error: str, line: LogLine, entry: str | None) -> _ErrorLine:
    kind = Kind.OUT_OF_MEMORY if error == NO_MEMORY else Kind.ERROR
    priority = Priority.CONSEQUENCE if error in OTHERS_DEATH else Priority.RELAYED
    return _ErrorLine(line, line.number, kind, priority, entry=entry)


def _gave_up(text: str, line: LogLine) -> _ErrorLine | None:
    """Return a message of giving up, or an errno's text at a line's end with the failed object."""
    if _LIBRARYS.search(text):
        return None
    words, before = errno(text)
    small = text.lower()
    gone, stopped = GONE.search(text), GIVING_UP.search(text)
    memory = OUT_OF_MEMORY.search(text) if any(word in small for word in _MEMORY) else None
    late = OUT_OF_TIME.search(text) if any(word in small for word in _TIMES) else None
    told = len(_LETTER.findall(before)) >= _FEWEST_LETTERS
    if not (gone or memory or late or stopped or told) or NOISE.search(before if told else text):
        return None
    kind, priority = kind_of(words, text)
    if memory:
        kind, priority = Kind.OUT_OF_MEMORY, Priority.RELAYED
    elif late:
        kind, priority = Kind.TIMEOUT, Priority.RELAYED
    elif _UNSUPPORTED.search(text):
        kind = Kind.TRANSPORT_UNAVAILABLE
    return _ErrorLine(line, line.number, kind, priority, _FAR if stopped else _FAR_FOR_AN_ERRNO, fatal=gone is not None)


def _told(text: str) -> str:
    """Return a line without the rank and host that it starts with."""
    return re.sub(r"^\W{0,4}(?:\[[^\[\]]{1,60}\]\s*|[Rr]ank \d+[:,]?\s*){1,3}", "", text).strip()
