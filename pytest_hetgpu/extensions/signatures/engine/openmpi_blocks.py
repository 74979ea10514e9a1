"""Blocks of `***` lines in Open MPI: an MPI error that ended the job, and MPI called too early or too late.

ompi/errhandler/errhandler_predefined.c and help-mpi-errors.txt print them, ompi/errhandler/errcode.c has the errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority, Process, process_of
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

TRIGGERS = (
    "*** An error occurred",
    "*** reported by process [",
    "*** on a NULL ",
    "*** on communicator ",
    "*** Unknown error",
    "*** Error code: ",
    "*** MPI_ERR",
    "function was called before MPI_INIT was invoked",
    "function was called after MPI_FINALIZE was invoked",
)
PEER_LOST = "a peer process ended; this log has no reason for it"

# Errors that name no cause: a lower layer failed.
_UNSPECIFIC = ("Unknown error", "MPI_ERR_OTHER", "MPI_ERR_INTERN", "MPI_ERR_UNKNOWN")
# Errors that a rank gets after another rank's death (User Level Failure Mitigation).
_OTHERS_DEATH = ("MPI_ERR_PROC_FAILED", "MPI_ERR_PROC_FAILED_PENDING", "MPI_ERR_REVOKED", "MPI_ERR_PROC_ABORTED")

_MEMORY = ("MPI_ERR_NO_MEM", "MPI_T_ERR_MEMORY")

_MOST_BLOCKS = 1000
_SAID = lazy(r"^(?P<prefix>[^*]{0,200})\*\*\* +(?P<said>\S.{0,1000})$")
# If a datatype lacks the operation, ompi/op/op.h adds that after the function's name.
_START = lazy(r"An error occurred(?: in (?P<entry>\S.*?)(?:(?<=\w): (?P<told>\S.*?))?)?\s*$")
_BY = lazy(r"reported by process \[\d+,(?P<rank>\d{1,7})\]")
_END = lazy(r"MPI_ERRORS_(?:ARE_FATAL|ABORT)\b")
_UNTIMELY = lazy(
    r"(?:The (?P<entry>\w+)\(\)|An MPI) function was called (?P<when>before MPI_INIT|after MPI_FINALIZE) was invoked"
)
_ERROR = lazy(r"(?P<error>MPI_(?:T_)?ERR_\w+)(?:: (?P<detail>.*))?$")
_NO_ERROR = lazy(r"(?:on (?:a NULL )?(?:communicator|win|file|session)\b|and potentially|and MPI will try|.*\*\*\*$)")


@dataclass(slots=True)
class _ErrorBlock:
    first: LogLine
    process: Process | None
    entry: str
    rank: int | None
    told: str | None = None
    error: str | None = None
    error_line: LogLine | None = None


class ErrorBlocks:
    """Parser of blocks that ranks write into each other; their prefixes distinguish them."""

    def __init__(self) -> None:
        self._blocks: list[_ErrorBlock] = []
        self._latest: dict[tuple[str, int | None], _ErrorBlock] = {}
        self._untimely: list[FailureMatch] = []

    def feed(self, line: LogLine) -> bool:
        """Take one line and return whether it was part of a block."""
        found = _SAID.match(line.text[:1500])
        if not found:
            return False
        said = found["said"].rstrip()
        key = (found["prefix"].strip(), line.rank)
        start, untimely = _START.match(said), _UNTIMELY.match(said)
        if start:
            self._start(key, line, start)
        elif untimely:
            self._called_untimely(line, untimely)
        elif key in self._latest:
            self._more(key, line, said)
        return True

    def _start(self, key: tuple[str, int | None], line: LogLine, found: re.Match[str]) -> None:
        if len(self._blocks) < _MOST_BLOCKS:
            entry, told = found["entry"] or "", found["told"]
            self._latest[key] = _ErrorBlock(line, process_of(key[0]), entry, line.rank, told)
            self._blocks.append(self._latest[key])

    def _more(self, key: tuple[str, int | None], line: LogLine, said: str) -> None:
        block, by = self._latest[key], _BY.match(said)
        if by:
            block.rank = int(by["rank"])
        elif _END.match(said):
            del self._latest[key]
        elif block.error is None and not _NO_ERROR.match(said):
            block.error, block.error_line = said, line

    def _called_untimely(self, line: LogLine, found: re.Match[str]) -> None:
        entry, early = found["entry"] or "", found["when"].startswith("before")
        signature = Signature(
            kind=Kind.ERROR,
            key=f"{'not-initialized' if early else 'finalized'}@{_function(entry) or 'MPI'}",
            primary_line=line.quote,
            line=line.number,
            detail=f"called {found['when']}",
            entry_point=entry or None,
            ranks=() if line.rank is None else (line.rank,),
        )
        if len(self._untimely) < _MOST_BLOCKS:
            self._untimely.append(FailureMatch(signature))

    def matches(self) -> Iterator[FailureMatch]:
        """Yield one match per block."""
        yield from self._untimely
        yield from map(_match, self._blocks)


def _function(entry: str) -> str:
    """Return the MPI function as a program calls it, without the marks of profiling and threaded forms."""
    return re.sub(r"^P(?=MPI)", "", entry).removesuffix("_thread")


def _match(block: _ErrorBlock) -> FailureMatch:
    """Return the match of an MPI error that ended the job, with the same key as mpi4py's exception."""
    found, function = _ERROR.match(block.error or ""), _function(block.entry)
    error = found["error"] if found else block.error or _UNSPECIFIC[0]
    line = block.error_line or block.first
    signature = Signature(
        kind=Kind.ERROR,
        key=f"{error}@{function}" if found else f"failed@{function}",
        primary_line=line.quote,
        line=line.number,
        detail=block.told or block.error or error,
        entry_point=block.entry or None,
        ranks=() if block.rank is None else (block.rank,),
        hosts=(block.process[0],) if block.process else (),
    )
    # Without a process id: the runtime that lost a connection reports it in the name of the rank.
    process = block.process if block.process and block.process[1] else None
    if error in _OTHERS_DEATH or not (found or re.fullmatch(r"\w+", block.entry)):
        # The runtime's own message stands in place of a function: `An error occurred in Socket closed`. Only that line
        # has a meaning then.
        said = line if found else block.first
        gone = replace(
            signature,
            key="peer-lost@openmpi",
            entry_point=None,
            detail=PEER_LOST,
            primary_line=said.quote,
            line=said.number,
        )
        return FailureMatch(gone, Priority.CONSEQUENCE, process)
    if error in _MEMORY:
        signature = replace(signature, kind=Kind.OUT_OF_MEMORY)
    if error not in _UNSPECIFIC:
        return FailureMatch(signature, Priority.CAUSE, process)
    kind = Kind.LAUNCH_FAILURE if function == "MPI_Init" else signature.kind
    return FailureMatch(replace(signature, kind=kind), Priority.UNSPECIFIC, process)
