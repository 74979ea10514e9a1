"""PETSc: its signal handler and its error handler, which write every line with `[RANK]PETSC ERROR: ` before it.

Read are src/sys/error/signal.c (PetscSignalHandlerDefault) and errtrace.c (PetscTraceBackErrorHandler).
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, slug
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST = 1000
_LONGEST = 2000

_LINE = lazy(r"^\[(?P<rank>\d{1,7})\]PETSC ERROR: (?P<text>.*)")
_SIGNAL = lazy(r"Caught signal number (?P<number>\d{1,2}) ?(?P<detail>.*)")
# `#1 VecSetSizes() at /src/vec.c:123`, formerly `#1 VecSetSizes() line 123 in /src/vec.c`: the first frame is the
# origin.
_ORIGIN = lazy(r"^#1 (?P<function>\w+)\(\)")
_FROM_OUTSIDE = ("SIGTERM", "SIGINT", "SIGHUP")
_MEMORY = lazy(r"Out of memory|Memory requested")


class Petsc(LogParser):
    """Parser of the first error of each rank; its trace and advice follow."""

    triggers = (b"PETSC ERROR: ",)

    def __init__(self) -> None:
        self._matches: dict[int, FailureMatch] = {}
        self._message: dict[int, LogLine] = {}

    def feed(self, line: LogLine) -> None:
        found = _LINE.match(line.text[:_LONGEST])
        if not found or len(self._message) >= _MOST:
            return
        rank, text = int(found["rank"]), found["text"].strip()
        if rank in self._matches or not text:
            return
        caught, origin = _SIGNAL.match(text), _ORIGIN.match(text)
        if caught:
            name = signal_name(int(caught["number"]))
            priority = Priority.CONSEQUENCE if name in _FROM_OUTSIDE else Priority.CAUSE
            self._add(rank, line, Signature(Kind.CRASH, name, "", 0, signal=name, detail=caught["detail"]), priority)
        elif "Error Message ---" in text:
            self._message.pop(rank, None)
        elif rank not in self._message and not text.startswith("-"):
            self._message[rank] = line
        elif origin and rank in self._message:
            self._failed(rank, origin["function"])

    def _failed(self, rank: int, function: str) -> None:
        line = self._message[rank]
        said = line.text.partition("PETSC ERROR: ")[2].strip()
        kind = Kind.OUT_OF_MEMORY if _MEMORY.search(said) else Kind.ERROR
        key = f"{slug(said) or 'error'}@petsc" + (f"!{function}" if function else "")
        self._add(rank, line, Signature(kind, key, "", 0, detail=said[:200]), Priority.CAUSE)

    def _add(self, rank: int, line: LogLine, signature: Signature, priority: Priority) -> None:
        told = Signature(
            signature.kind,
            signature.key,
            line.quote,
            line.number,
            signal=signature.signal,
            detail=signature.detail,
            ranks=(rank,),
            hosts=(line.host,) if line.host else (),
        )
        self._matches[rank] = FailureMatch(told, priority)

    def finish(self) -> Sequence[FailureMatch]:
        for rank in self._message:
            if rank not in self._matches:
                self._failed(rank, "")
        return tuple(self._matches.values())
