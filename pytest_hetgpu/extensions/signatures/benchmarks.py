"""Results that failed their check: OSU, nccl-tests, perftest, STREAM, HPL, NPB, and programs that verify themselves.

Sources: osu_util.c of OSU micro-benchmarks, util.cu and common.cu of nccl-tests and rccl-tests. Also IMB_chk_diff.c of
Intel MPI benchmarks, perftest_resources.c of perftest, stream.c, HPL_pdtest.c, and NPB's print_results. Texts of
programs that check themselves are in `_messages.verdicts`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures._messages.verdicts import NOT_DATA, CheckMessage, check_message
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, token
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST = 1000
_MOST_NAMED = 64
_LONGEST = 2000

# A verdict is about a whole check, an element about one wrong place. If a log has both, the verdict is quoted.
_VERDICT, _ELEMENT = Priority.CAUSE, Priority.RELAYED

_TEXTS: tuple[tuple[str, Kind, str, Priority], ...] = (
    # osu_util.c, print_..._stats
    (r"^DATA VALIDATION ERROR: (?P<what>\S+) exited with status", Kind.WRONG_RESULT, "validation@{what}", _VERDICT),
    (r"^\d+(?:\s+[\d.]+){1,12}\s+Fail\s*$", Kind.WRONG_RESULT, "validation@osu", _ELEMENT),
    # nccl-tests: util.cu and common.cu
    (r"^#? ?Out of bounds values\s+: [1-9]\d* FAILED", Kind.WRONG_RESULT, "out-of-bounds@nccl-tests", _VERDICT),
    (r"^#? ?Avg bus bandwidth\s+: \S+ FAILED", Kind.SLOW, "bandwidth@nccl-tests", _VERDICT),
    (r"^rank=\d+ #wrong=[1-9]", Kind.WRONG_RESULT, "out-of-bounds@nccl-tests", _ELEMENT),
    (r"ERROR: Data corruption : rank", Kind.WRONG_RESULT, "out-of-bounds@nccl-tests", _ELEMENT),
    # IMB_chk_diff.c
    (r"^(?:\d+: )?Error \S.{0,200},\s?size = \d+,\s?sample #\d+", Kind.WRONG_RESULT, "check@imb", _VERDICT),
    (r"check of contiguity of received buffer portions failed", Kind.WRONG_RESULT, "check@imb", _ELEMENT),
    # perftest_resources.c, perftest_communication.c
    (r"^VALIDATION: FAILED.* error\(s\)", Kind.WRONG_RESULT, "validation@perftest", _VERDICT),
    (
        r"Failed status (?P<what>\d+): wr_id \d+ synd",
        Kind.NETWORK_FAILURE,
        "completion-{what}@perftest",
        Priority.CAUSE,
    ),
    (r"Completion with error at (?:client|server)", Kind.NETWORK_FAILURE, "completion@perftest", Priority.RELAYED),
    (
        r"Couldn't connect to \S+:\d+|Unable to init the socket connection",
        Kind.NETWORK_FAILURE,
        "connect@perftest",
        Priority.RELAYED,
    ),
    (r"Unable to find the Infiniband/RoCE device", Kind.TRANSPORT_UNAVAILABLE, "no-device@perftest", Priority.CAUSE),
    # stream.c, HPL_pdtest.c, print_results of NPB, hpcg.cpp
    (r"Failed Validation on array \S+|Solution Validates: FAILED", Kind.WRONG_RESULT, "validation@stream", _VERDICT),
    (r"^\|\|Ax-b\|\|.*FAILED\s*$", Kind.WRONG_RESULT, "residual@hpl", _VERDICT),
    (r"\b[1-9]\d* tests completed and failed residual checks", Kind.WRONG_RESULT, "residual@hpl", _ELEMENT),
    (r"^\s*Verification\s+=\s+UNSUCCESSFUL", Kind.WRONG_RESULT, "verification@npb", _VERDICT),
    (r"HPCG result is INVALID", Kind.WRONG_RESULT, "validation@hpcg", _VERDICT),
)
_COMPILED = tuple((lazy(words), kind, key, priority) for words, kind, key, priority in _TEXTS)
_OWN_CHECK = "verification@program"

_RANK = lazy(r"\b[Rr]ank[ :#=]{0,2}(?P<rank>\d{1,7})\b")
_HOST = lazy(r"^\[(?P<host>[A-Za-z][\w.-]{0,200})\] ")

# nccl-tests' table: size, count, type, operation, root, then out of place and in place time, algbw, busbw, #wrong.
_ROW = lazy(
    r"^\s*\d+\s+\d+\s+[a-z]\w+\s+[a-z]+\s+-?\d+(?:\s+[\d.]+){3}\s+(?P<out>[\d.e+]+|N/A)"
    r"(?:(?:\s+[\d.]+){3}\s+(?P<into>[\d.e+]+|N/A))?"
)


class Benchmarks(LogParser):
    """Parser of failed checks: one match per verdict, with the ranks and hosts that the lines on elements name."""

    triggers = (
        b"DATA VALIDATION ERROR",
        b"     Fail",
        b"#wrong=",
        *(f"  {operation}   ".encode() for operation in ("sum", "prod", "max", "min", "avg", "none")),
        b"Out of bounds values",
        b"Avg bus bandwidth",
        b"sample #",
        b"check of contiguity",
        b"VALIDATION",
        b"Validation",
        b"alidation ",
        b"erification",
        b"VERIFICATION",
        b"Failed status ",
        b"Completion with error at",
        b"Couldn't connect to",
        b"Unable to init the socket",
        b"Infiniband/RoCE device",
        b"||Ax-b||",
        b"failed residual checks",
        b"HPCG result",
        b"orrectness",
        b"result check",
        b"data check",
        b"DATA CHECK",
        b"elf-test",
        b"hecksum",
        b"CHECKSUM",
        b"wrong",
        b"WRONG",
        b"ncorrect",
        b"INCORRECT",
        b"ismatch",
        b"MISMATCH",
        b" bad ",
        b" corrupt",
        b"ata corruption",
        b"ONSERVED",
        b"onserved",
        b"olerance",
        b"iverged",
        b" differ",
        b"not match",
        b"n't match",
        b"not agree",
        b"expected",
        b"Expected",
        b"should be ",
        b"instead of ",
        b"RESULT",
        b"Result: ",
        b"Result = ",
        b"result: ",
        b"esult is ",
        b"NOT PASS",
        b"ot pass",
        b"FAILED",
        b"INVALID RESULT",
        b"nvalid result",
    )

    def __init__(self) -> None:
        self._matches: list[FailureMatch] = []
        self._ranks: set[int] = set()
        self._hosts: dict[str, None] = {}

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        if found := _ROW.match(text):
            if any(map(_some, found.groups())):
                self._add(line, text, Kind.WRONG_RESULT, "out-of-bounds@nccl-tests", _ELEMENT)
            return
        for pattern, kind, key, priority in _COMPILED:
            if (found := pattern.search(text)) and (key.endswith("tests") or not NOT_DATA.search(text)):
                self._add(line, text, kind, key.replace("{what}", token(found.groupdict().get("what") or "")), priority)
                return
        if found_wrong := check_message(text):
            priority = _VERDICT if found_wrong is CheckMessage.VERDICT else _ELEMENT
            self._add(line, text, Kind.WRONG_RESULT, _OWN_CHECK, priority)

    def _add(self, line: LogLine, text: str, kind: Kind, key: str, priority: Priority) -> None:
        rank, host = _RANK.search(text), _HOST.match(text)
        number = int(rank["rank"]) if rank else line.rank
        if number is not None and len(self._ranks) < _MOST_NAMED:
            self._ranks.add(number)
        if (name := host["host"] if host else line.host) and len(self._hosts) < _MOST_NAMED:
            self._hosts[name] = None
        if len(self._matches) < _MOST:
            signature = Signature(kind, key, line.quote, line.number, detail=text.strip()[:200])
            self._matches.append(FailureMatch(signature, priority))

    def finish(self) -> Sequence[FailureMatch]:
        ranks, hosts = tuple(sorted(self._ranks)), tuple(self._hosts)
        return tuple(
            replace(match, signature=replace(match.signature, ranks=ranks, hosts=hosts))
            if match.signature.kind is Kind.WRONG_RESULT
            else match
            for match in self._matches
        )


def _some(wrong: str | None) -> bool:
    """Return whether a figure of the table's `#wrong` is a number other than 0."""
    return re.fullmatch(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", wrong or "") is not None and (wrong or "").strip("0.") != ""
