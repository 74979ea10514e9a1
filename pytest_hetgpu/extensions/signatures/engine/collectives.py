"""Ranks of torch.distributed that wait for each other in different collectives: an error of the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

# Of torch/distributed/distributed_c10d.py. A send and a receive are a pair.
_COLLECTIVES = frozenset(
    (
        *("all_reduce", "broadcast", "barrier", "reduce", "scatter", "gather", "all_gather", "reduce_scatter"),
        *("all_to_all", "all_to_all_single", "all_gather_into_tensor", "reduce_scatter_tensor", "all_gather_object"),
        *("broadcast_object_list", "gather_object", "scatter_object_list", "monitored_barrier", "all_reduce_coalesced"),
    )
)
_WAITS = (Kind.TIMEOUT, Kind.NETWORK_FAILURE)
_MOST_RANKS, _MOST_WORKS = 4096, 1000
# ProcessGroupNCCL.cpp. Groups count on their own, so that a line without its group proves nothing.
_WORK = lazy(
    r"\[PG (?P<group>(?:ID )?\S+ [^\]]{0,100}?)Rank (?P<rank>\d{1,7})\].{0,200}?"
    r"WorkNCCL\(SeqNum=(?P<number>\d{1,12}), OpType=(?P<called>\w+)"
)


def of_tracebacks(matches: Sequence[FailureMatch]) -> list[FailureMatch]:
    """Return the mismatch that the exceptions of waiting ranks show; no match if they were in one collective."""
    waits = [match.signature for match in matches if match.signature.kind in _WAITS and len(match.signature.ranks) == 1]
    calls = {one.ranks[0]: one for one in waits if one.entry_point in _COLLECTIVES}
    found = {rank: one.entry_point or "" for rank, one in sorted(calls.items())[:_MOST_RANKS]}
    first = min(calls.values(), key=lambda one: one.line, default=None)
    if first is None or len({*found.values()}) < 2:
        return []
    # Another rank's own exception explains more: these may be in groups of their own that wait for it.
    return [_mismatch(found, first.primary_line, first.line, Priority.RELAYED)]


class Works:
    """The operations of NCCL that did not end, by process group and number."""

    def __init__(self) -> None:
        self._called: dict[tuple[str, str], dict[int, tuple[str, LogLine]]] = {}

    def feed(self, line: LogLine) -> None:
        """Take a line of the watchdog."""
        found = _WORK.search(line.text[:4096])
        if found is None or (
            len(self._called) >= _MOST_WORKS and (found["group"], found["number"]) not in self._called
        ):
            return
        ranks = self._called.setdefault((found["group"], found["number"]), {})
        if len(ranks) < _MOST_RANKS:
            ranks.setdefault(int(found["rank"]), (found["called"], line))

    def finish(self) -> list[FailureMatch]:
        """Return the first operation that ranks of a group have under one number and different names."""
        for ranks in self._called.values():
            found = {rank: called for rank, (called, _) in sorted(ranks.items())}
            if len({*found.values()}) > 1:
                line = min((line for _, line in ranks.values()), key=lambda one: one.number)
                return [_mismatch(found, line.quote, line.number, Priority.CAUSE)]
        return []


def _mismatch(called: Mapping[int, str], quote: str, line: int, priority: Priority) -> FailureMatch:
    by_call: dict[str, list[int]] = {}
    for rank, call in called.items():
        by_call.setdefault(call, []).append(rank)
    detail = ", ".join(
        f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:5]))} in {call}" for call, ranks in by_call.items()
    )
    signature = Signature(
        Kind.ERROR,
        "collective-mismatch@c10d",
        quote,
        line,
        detail=f"different collectives: {detail}"[:200],
        ranks=tuple(called),
    )
    return FailureMatch(signature, priority)
