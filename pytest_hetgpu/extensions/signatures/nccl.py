"""NCCL and RCCL: their warnings, the calls that failed with them, and results as programs print them.

`src/debug.cc` writes the prefix (NCCL 2.27 may put a time before it, 2.29 adds the function). `include/checks.h` writes
the trail `FILE:LINE -> RESULT` of a call that failed, `init.cc` the texts of results. A trail that ends in a thread of
the library (`[Proxy Thread]`, `[Async thread]`), or in the files of the calls themselves, proves a lost communicator. A
program may survive any other warning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_hetgpu.extensions.signatures._messages.nccl import PEER_LOST, Meaning, meaning
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, Process
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST = 1000
_LONGEST = 4096

_SAID = lazy(
    r"(?P<host>[\w.-]{1,255}):(?P<pid>\d{1,10}):(?P<thread>\d{1,10}) \[-?\d+\] (?:\S{1,300}:\d+ )?(?:\(\w+\) )?"
    r"NCCL (?P<level>WARN|INFO) (?P<text>.*)"
)
_TRAIL = lazy(r":\d+ -> [1-7]\b(?P<end> \[(?:Proxy|Async)\b)?", re.IGNORECASE)
_OF_A_CALL = lazy(r"^(?:\S*/)?(?:init|group|enqueue|collectives)\.cc:\d+ -> [1-7]\b")
_FATAL = ("message-truncated@nccl",)
_RANK = lazy(r"\bcomm 0x[0-9a-f]+ rank (?P<rank>\d+) nranks \d+")
_ENDING = lazy(r"\b(?:Abort|Destroy) COMPLETE|[Aa]bort|\[Service thread\]|\[Proxy |retry")

# enum ncclResult_t in nccl.h.in, and ncclGetErrorString in init.cc.
_RESULTS = (
    ("ncclUnhandledCudaError", "unhandled cuda error"),
    ("ncclSystemError", "unhandled system error"),
    ("ncclInternalError", "internal error"),
    ("ncclInvalidArgument", "invalid argument"),
    ("ncclInvalidUsage", "invalid usage"),
    ("ncclRemoteError", "remote process exited or there was a network error"),
)
_CALLED = lazy(r"\b(?:nccl|rccl)(?=[A-Z])(?!\w*Error\b)(?!Invalid|Success)\w{3,60}")
# nccl-tests' and rccl-tests' common.h, NVIDIA's examples: `node1: Test NCCL failure FILE:LINE 'WORDS / LAST WARNING'`.
_WRAPPED = lazy(r"(?:(?P<host>^[\w.-]+): Test )?\b(?:NCCL|RCCL) (?:failure|error)\b", re.IGNORECASE)
_LAST = lazy(r"'[^'/]{1,120} / (?P<last>\w.{0,1000}?)\s*'?\s*$")
# Lines of other parsers: exceptions, PyTorch's log lines and its paragraph on a result, lines of other libraries.
_OTHERS = lazy(
    r"^\[?[EWIF]\d{4} |ProcessGroupNCCL|^[\w.]*(?:Error|Exception): |^\s+what\(\):|\b(?:UCX|UCC|CL_\w+|TL_\w+) +[A-Z]+ "
    r"|^nccl\w+: [A-Z]|\bNCCL (?:INFO|TRACE|CALL) "
)


@dataclass(slots=True)
class _Warning:
    """A warning that may have been why its thread's call failed."""

    line: LogLine
    process: Process | None
    thread: tuple[Process | None, str]
    meaning: Meaning
    survived: bool = False
    proven: bool = False


class Nccl(LogParser):
    """Parser of warnings, one match each; a warning after which the same thread continued explains little."""

    triggers = (
        b"NCCL WARN ",
        b"NCCL failure",
        b"NCCL error",
        b"RCCL error",
        b": 0 no error",
        b"Init COMPLETE",
        b"internal error - please report",
        *(name.encode() for name, _ in _RESULTS),
        *(words.encode() for _, words in _RESULTS if words != "internal error"),
    )
    context = 6

    def __init__(self) -> None:
        self._warnings: list[_Warning] = []
        self._results: list[FailureMatch] = []
        self._ranks: dict[Process, int] = {}
        self._last: dict[tuple[Process | None, str], _Warning] = {}

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        said = _SAID.search(text)
        if said:
            process = (said["host"].split(".")[0], int(said["pid"]))
            if said["level"] == "WARN":
                self._warned(line, process, said["thread"], said["text"])
            else:
                self._informed(process, said["thread"], said["text"])
        elif "NCCL WARN " in text:
            self._warned(line, None, "", text.partition("NCCL WARN ")[2])
        elif ": 0 no error" in text:
            for warning in self._warnings:
                warning.survived = not warning.proven
        else:
            self._printed(line, text)

    def _warned(self, line: LogLine, process: Process | None, thread: str, text: str) -> None:
        means = meaning(text.strip())
        if means and len(self._warnings) < _MOST:
            warning = _Warning(line, process, (process, thread), means)
            self._warnings.append(warning)
            self._last[warning.thread] = warning

    def _informed(self, process: Process, thread: str, text: str) -> None:
        if (found := _RANK.search(text)) and len(self._ranks) < _MOST:
            self._ranks[process] = int(found["rank"])
        warning, trail = self._last.get((process, thread)), _TRAIL.search(text)
        if warning and trail:
            warning.proven |= trail["end"] is not None or _OF_A_CALL.match(text) is not None
        elif warning and not _ENDING.search(text):
            del self._last[warning.thread]
            warning.survived = not warning.proven

    def _printed(self, line: LogLine, text: str) -> None:
        name = next((name for name, words in _RESULTS if name in text or words in text), None)
        called = next((found[0] for found in _CALLED.finditer(text) if found[0] not in dict(_RESULTS)), None)
        wrapped = _WRAPPED.search(text)
        if len(self._results) >= _MOST or not (name and (wrapped or called or "NCCL_DEBUG" in text or name in text)):
            return
        if _OTHERS.search(text):
            return
        last = _LAST.search(text) if wrapped else None
        means = meaning(last["last"]) if last else None
        host = wrapped["host"] if wrapped else None
        signature = Signature(
            kind=means.kind if means else Kind.NETWORK_FAILURE if name == "ncclRemoteError" else Kind.ERROR,
            key=means.key if means else f"{name}@{called or 'nccl'}",
            primary_line=line.quote,
            line=line.number,
            detail=f"{name}: {means.detail}" if means else name,
            entry_point=called,
            ranks=() if line.rank is None else (line.rank,),
            hosts=tuple(filter(None, (host or line.host,))),
        )
        self._results.append(FailureMatch(signature, Priority.RELAYED))

    def finish(self) -> Sequence[FailureMatch]:
        entry = next((r.signature.entry_point for r in self._results if r.signature.entry_point), None)
        return (*(self._match(warning, entry) for warning in self._warnings), *self._results)

    def _match(self, warning: _Warning, entry: str | None) -> FailureMatch:
        """Return a warning with the call that the program reports as failed, if any."""
        means, line = warning.meaning, warning.line
        rank = self._ranks.get(warning.process) if warning.process else None
        signature = Signature(
            kind=means.kind,
            key=means.key,
            primary_line=line.quote,
            line=line.number,
            detail=means.detail,
            entry_point=means.entry or (None if warning.survived else entry),
            ranks=tuple(rank for rank in (line.rank if rank is None else rank,) if rank is not None),
            hosts=tuple(filter(None, (warning.process[0] if warning.process else line.host,))),
        )
        gone = means.key == PEER_LOST and any(r.signature.key.startswith("ncclRemoteError") for r in self._results)
        told = Priority.RELAYED if gone else means.priority
        priority = max(told, Priority.SYMPTOM) if warning.survived else told
        # A fragment without its process gets no further lines.
        proven = warning.proven or (means.key in _FATAL and warning.process is None)
        return FailureMatch(signature, priority, warning.process, fatal=proven and priority <= Priority.RELAYED)
