"""Errors of the MPICH library before it aborts, and of its derivatives: Intel MPI, Cray MPICH, MVAPICH.

`MPIR_Handle_fatal_error` (src/mpi/errhan/errutil.c) writes the head of an error stack through `MPID_Abort`. In
src/mpid/ch4/src/ch4_globals.c that prints `Abort(CODE) on node N (rank R in comm C): ...`, in which N is the rank in
MPI_COMM_WORLD. In src/mpid/ch3/src/mpid_abort.c it prints the message alone. Lines of the stack are
`FUNCTION(LINE)....: TEXT`, outermost first; the last of them names the reason. Their texts are those of
src/mpi/errhan/errnames.txt and of the devices' own errnames.txt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_hetgpu.extensions.signatures._messages.mpich_classes import NO_MEMORY, OTHERS_DEATH, UNSPECIFIC, error_class
from pytest_hetgpu.extensions.signatures._messages.mpich_reasons import MpichReason, mpi_name, reason_in
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, slug, token
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind

_FATAL = "Fatal error in "
_ABORT = "application called MPI_Abort("
_WINDOW = 30
_MOST_OPEN = 64
_MOST_READINGS = 1000
_LONGEST_LINE = 4096

# Ranks write in the middle of each other's lines, so the head may stand anywhere in one.
_HEAD = lazy(
    r"(?:\[Rank (?P<cray>\d{1,7})\][^\n]{0,300}?(?:\[(?P<host>[\w.-]{1,255})\] - )?)?"
    r"(?:Abort\((?P<code>-?\d{1,10})\)(?: on node (?P<node>\d{1,7}))?"
    r"(?: \(rank (?P<rank>\d{1,7}) in comm -?\w{1,10}\))?: )?"
    r"Fatal error in (?P<entry>[A-Za-z]\w{1,99}): ?(?P<what>[^\n]{0,1000})"
)
_STACK = lazy(
    r"(?P<function>\(unknown\)|[A-Za-z]\w{0,99}_\w{1,99})\((?P<at>\d{0,6})\)\.{0,60} ?: {1,2}(?P<text>.{0,2000})$"
)
# MVAPICH and MPICH 1.x and 3.0 put the class on a line of its own.
_CLASS = lazy(r"^(?P<what>[A-Z][^:\n]{2,120}), error stack:\s*$")
# A program's own error handler prints MPI_Error_string's text: `..., error stack:` behind words of its own.
_PRINTED = lazy(r"(?:^|: )(?P<what>[A-Z][^:\n]{2,120}), error stack:\s*$")
_STARTS = lazy(r"_(?:Init|Init_thread|Session_init)$")
_CALLED = lazy(
    r"(?:Abort\(-?\d{1,10}\)(?: on node (?P<node>\d{1,7}))?(?: \(rank (?P<rank>\d{1,7}) in comm \w{1,10}\))?: )?"
    r"application called MPI_Abort\([^,()]{0,200}, (?P<code>-?\d{1,10})\)(?: - process (?P<process>\d{1,7}))?"
)


@dataclass(slots=True)
class _Stack:
    """One rank's error, while its stack is parsed; `deepest` is its last line with a text."""

    head: LogLine
    entry: str
    what: str
    rank: int | None
    host: str | None
    left: int = _WINDOW
    begun: bool = False
    deepest: tuple[str, str, LogLine] | None = None
    fatal: bool = True
    reason: tuple[MpichReason, str, LogLine] | None = None

    def add_text(self, function: str, text: str, line: LogLine) -> None:
        """Take the text of one function of the stack."""
        self.deepest = (function, text, line)
        reason = reason_in(text, _STARTS.search(self.entry) is not None)
        if reason:
            self.reason = (reason, function, line)


class MpichErrors(LogParser):
    """Error stacks of several ranks, which may be mixed with each other and with the programs' own words."""

    triggers = (_FATAL.encode(), _ABORT.encode(), b", error stack:")
    context = _WINDOW

    def __init__(self) -> None:
        self._open: list[_Stack] = []
        self._matches: list[FailureMatch] = []
        self._exits: dict[int, RankExit] = {}

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST_LINE]
        if _FATAL in text and (found := _HEAD.search(text)):
            self._head(found, line)
        elif _ABORT in text and (found := _CALLED.search(text)):
            self._called(found, line)
        else:
            self._frame(text, line)

    def _head(self, found: re.Match[str], line: LogLine) -> None:
        rank = next((int(found[name]) for name in ("cray", "node", "rank") if found[name]), line.rank)
        what, _, said = found["what"].strip().removesuffix(":").partition(", ")
        if len(self._open) >= _MOST_OPEN:
            self._close(self._open[0])
        stack = _Stack(line, found["entry"], what, rank, found["host"] or line.host)
        self._open.append(stack)
        if said and said != "error stack":
            # MPIR_CVAR_PRINT_ERROR_STACK=0 leaves the innermost text, on the head's own line.
            stack.add_text(found["entry"], said, line)

    def _frame(self, text: str, line: LogLine) -> None:
        for stack in list(self._open):
            stack.left -= 1
            if stack.left <= 0:
                self._close(stack)
        bare = next((stack for stack in self._open if not stack.what), None)
        if bare and (found := _CLASS.search(text)):
            bare.what = found["what"]
            return
        if found := _PRINTED.search(text):
            self._open.append(_Stack(line, "", found["what"], line.rank, line.host, fatal=False))
            if len(self._open) > _MOST_OPEN:
                self._close(self._open[0])
            return
        found = _STACK.search(text)
        owner = self._owner(found["function"], line) if found else None
        if found is None or owner is None:
            return
        owner.left = _WINDOW
        if found["text"].strip():
            owner.add_text(found["function"], found["text"].strip(), line)

    def _owner(self, function: str, line: LogLine) -> _Stack | None:
        """Return the stack that a line belongs to: by its rank prefix, else by indentation, else the last begun."""
        told = [stack for stack in self._open if line.rank is not None and stack.head.rank == line.rank]
        fresh = [stack for stack in told or self._open if stack.entry in (function, "") and not stack.begun]
        if fresh:
            fresh[0].begun, fresh[0].entry = True, function
            self._open.remove(fresh[0])
            self._open.append(fresh[0])
        return next(iter(fresh or told[-1:] or self._open[-1:]), None)

    def _close(self, stack: _Stack) -> None:
        self._open.remove(stack)
        if len(self._matches) < _MOST_READINGS and stack.entry:
            match = _match(stack)
            relayed = replace(match, priority=max(match.priority, Priority.RELAYED), fatal=False)
            self._matches.append(match if stack.fatal else relayed)

    def _called(self, found: re.Match[str], line: LogLine) -> None:
        rank = next((int(found[name]) for name in ("node", "process", "rank") if found[name]), line.rank)
        code = int(found["code"])
        if rank is not None and len(self._exits) < _MOST_READINGS:
            self._exits.setdefault(rank, RankExit(rank, code=code, aborted=True))
        signature = Signature(
            Kind.ERROR,
            f"MPI_Abort@{code}",
            line.quote,
            line.number,
            detail=f"application called MPI_Abort with {code}",
            ranks=() if rank is None else (rank,),
            hosts=(line.host,) if line.host else (),
        )
        if len(self._matches) < _MOST_READINGS:
            self._matches.append(FailureMatch(signature, Priority.EXIT))

    def finish(self) -> Sequence[FailureMatch]:
        for stack in list(self._open):
            self._close(stack)
        return tuple(self._matches)

    def exits(self) -> Sequence[RankExit]:
        return tuple(self._exits.values())


def _match(stack: _Stack) -> FailureMatch:
    """Return a stack as a match.

    The head names an error of its own class (`Invalid rank`), and the stack has the details. For `Other MPI error` only
    the deepest line has the cause.
    """
    entry, what = mpi_name(stack.entry), error_class(stack.what)
    signature = Signature(
        Kind.ERROR,
        f"{what or slug(stack.what) or 'error'}@{entry}",
        stack.head.quote,
        stack.head.number,
        detail=stack.deepest[1] if stack.deepest else stack.what or None,
        entry_point=entry,
        ranks=() if stack.rank is None else (stack.rank,),
        hosts=(stack.host,) if stack.host else (),
    )
    if stack.what and what not in UNSPECIFIC:
        kind = Kind.OUT_OF_MEMORY if what == NO_MEMORY else Kind.ERROR
        priority = Priority.CONSEQUENCE if what in OTHERS_DEATH else Priority.CAUSE
        return FailureMatch(replace(signature, kind=kind), priority)
    if stack.reason:
        reason, function, line = stack.reason
        signature = replace(
            signature,
            kind=reason.kind,
            key=f"{reason.key}@{token(function) if reason.by_function else entry}",
            detail=reason.detail or signature.detail,
            primary_line=line.quote,
            line=line.number,
        )
        return FailureMatch(signature, reason.priority)
    if not stack.deepest:
        return FailureMatch(signature, Priority.UNSPECIFIC)
    function, said, line = stack.deepest
    outer = mpi_name(function) == entry
    key = f"{slug(said)}@{entry if outer else token(function)}"
    signature = replace(signature, key=key, primary_line=line.quote, line=line.number)
    return FailureMatch(signature, Priority.RELAYED)
