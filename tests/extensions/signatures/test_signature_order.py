"""Reports of one failure are joined, and the root cause comes first."""

from __future__ import annotations

from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, Priority, Process
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.verdict import Kind


def match(
    key: str, line: int, priority: Priority = Priority.CAUSE, process: Process | None = None, **changes: object
) -> FailureMatch:
    name = key.partition("@")[0]
    signal = name if name.startswith("SIG") else None
    kind = Kind.CRASH if signal else Kind.ERROR
    signature = replace(Signature(kind, key, f"line {line}", line, signal=signal), **changes)  # type: ignore[arg-type]
    return FailureMatch(signature, priority, process)


def keys(*matches: FailureMatch, ranks: dict[Process, int] | None = None) -> list[str]:
    return [signature.key for signature in by_priority(matches, ranks)]


def test_weight_before_line() -> None:
    found = keys(
        match("peer-lost", 1, Priority.CONSEQUENCE),
        match("MPI_ERR_OTHER", 2, Priority.UNSPECIFIC),
        match("refused", 3, Priority.SYMPTOM),
        match("exit@3", 4, Priority.EXIT),
        match("failed@MPI_Init", 5, Priority.RELAYED),
        match("second", 7),
        match("first", 6),
    )
    assert found == ["first", "second", "failed@MPI_Init", "exit@3", "refused", "MPI_ERR_OTHER", "peer-lost"]


def test_two_handlers_of_one_process_are_one_crash() -> None:
    process = ("vm", 7)
    bare = match("SIGSEGV", 3, process=process, detail="invalid permissions")
    framed = match("SIGSEGV@libx.so!f", 9, process=process, library="libx.so.0", function="f", entry_point="MPI_Send")
    (crash,) = by_priority([framed, bare])
    assert (crash.key, crash.line, crash.detail, crash.entry_point) == (
        "SIGSEGV@libx.so!f",
        3,
        "invalid permissions",
        "MPI_Send",
    )


def test_a_crash_outweighs_what_its_process_had_survived() -> None:
    process, other = ("vm", 7), ("vm", 8)
    logged = replace(match("send-failed", 3, process=process), fatal=False)
    ended = match("SIGSEGV", 9, Priority.EXIT, process=process)
    assert keys(logged, ended) == ["SIGSEGV", "send-failed"]
    assert keys(replace(logged, process=other), ended) == ["send-failed", "SIGSEGV"]
    killed = match("SIGKILL", 9, Priority.EXIT, process=process)
    assert keys(logged, killed) == ["send-failed", "SIGKILL"]


def test_a_second_signal_of_a_process_is_what_its_handler_met() -> None:
    process = ("vm", 7)
    echo = match("SIGSEGV", 20, Priority.EXIT, ranks=(2,))
    assert keys(match("SIGSEGV", 5, process=process), match("SIGABRT", 3, process=process), echo) == [
        "SIGABRT",
        "SIGSEGV",
    ]


def test_the_launchers_echo_of_a_crash_is_dropped_and_its_rank_kept() -> None:
    crash, echo = (
        match("SIGSEGV@libx.so!f", 3, process=("vm", 7)),
        match("SIGSEGV", 20, Priority.EXIT, ranks=(1,)),
    )
    (found,) = by_priority([crash, echo])
    assert (found.key, found.ranks) == ("SIGSEGV@libx.so!f", (1,))
    other = match("SIGSEGV@liby.so!g", 4, process=("vm", 8))
    assert [signature.ranks for signature in by_priority([crash, other, echo])] == [(), ()]


def test_processes_get_their_ranks_and_equal_keys_are_one_signature() -> None:
    crashes = [match("SIGSEGV@libx.so!f", line, process=("vm", line), hosts=("vm",)) for line in (7, 8)]
    (found,) = by_priority(crashes, {("vm", 7): 0, ("vm", 8): 1})
    assert (found.ranks, found.hosts, found.line) == ((0, 1), ("vm",), 7)


def test_what_a_second_report_adds() -> None:
    process = ("vm", 7)
    head = match("SIGSEGV@libx.so!f", 3, process=process, library="libx.so")
    other = match("SIGSEGV@libx.so", 9, process=process, library="libx.so", detail="because", entry_point="MPI_Send")
    (joined,) = by_priority([head, other])
    assert (joined.key, joined.detail, joined.entry_point) == ("SIGSEGV@libx.so!f", "because", "MPI_Send")
    told = match("SIGSEGV@libx.so!f", 3, process=process, library="libx.so", detail="first")
    assert [signature.detail for signature in by_priority([told, other])] == ["first"]


def test_only_handlers_reports_of_a_process_are_joined() -> None:
    process = ("vm", 7)
    assert keys(match("a", 1, process=process), match("b", 2, process=process)) == ["a", "b"]


def test_equal_keys_complete_each_other() -> None:
    first = match("SIGSEGV@libx.so", 1, process=("a", 1))
    again = match("SIGSEGV@libx.so", 2, process=("b", 1), entry_point="MPI_Send")
    assert [signature.entry_point for signature in by_priority([first, again])] == ["MPI_Send"]


def test_every_rank_and_host_counts() -> None:
    many = [match("x@y", rank + 1, ranks=(rank,), hosts=(f"n{rank}",)) for rank in range(3000)]
    (one,) = by_priority(many)
    assert one.ranks == tuple(range(3000))
    assert len(one.hosts) == 3000


def test_messages_behind_the_prefix_of_a_collector_are_not_equal_for_it() -> None:
    prefix = "Nov 20 08:11:27 a-node-of-the-cluster python3[48211]: "
    peer = match("connect@store", 4, Priority.CONSEQUENCE, detail="timed out", primary_line=f"{prefix}timed out")
    own = match("connect@store", 9, Priority.SYMPTOM, detail="failed", primary_line=f"{prefix}failed")
    (found,) = by_priority((peer, own))
    assert (found.line, found.primary_line) == (9, f"{prefix}failed")
