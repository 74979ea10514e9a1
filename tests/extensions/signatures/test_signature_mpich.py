"""Failures printed by MPICH and its launcher."""

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority
from pytest_hetgpu.extensions.signatures.mpich_errors import MpichErrors
from pytest_hetgpu.extensions.signatures.mpich_exits import MpichExits
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind

RULE = "=" * 83


def banner(code: int, pid: int = 5490, host: str = "vm") -> str:
    """MPICH's, of one process of a node."""
    return (
        f"\n{RULE}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID {pid} RUNNING AT {host}\n"
        f"=   EXIT CODE: {code}\n=   CLEANING UP REMAINING PROCESSES\n"
        f"=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES\n{RULE}\n"
    )


def intel(rank: int, signal: int, name: str, host: str = "node1") -> str:
    """Intel MPI's, of one rank."""
    return (
        f"\n{RULE}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
        f"=   RANK {rank} PID {4109 + rank} RUNNING AT {host}\n=   KILLED BY SIGNAL: {signal} ({name})\n{RULE}\n"
    )


def string(signal: int, name: str) -> str:
    return (
        f"YOUR APPLICATION TERMINATED WITH THE EXIT STRING: {name} (signal {signal})\n"
        "This typically refers to a problem with your application.\n"
        "Please see the FAQ page for debugging suggestions\n"
    )


SEGV = string(11, "Segmentation fault")


def matches(parser: LogParser, text: str) -> list[FailureMatch]:
    for number, line in enumerate(text.splitlines(), 1):
        parser.feed(parse_line(line, number))
    return list(parser.finish())


def read(parser: LogParser, text: str) -> list[Signature]:
    return [match.signature for match in matches(parser, text)]


@pytest.mark.parametrize(
    ("text", "expected", "quote"),
    [
        (banner(11) + SEGV, "crash SIGSEGV", "=   EXIT CODE: 11"),
        (banner(11), "crash SIGSEGV", "=   EXIT CODE: 11"),
        (banner(139), "crash SIGSEGV", "=   EXIT CODE: 139"),
        (banner(134), "crash SIGABRT", "=   EXIT CODE: 134"),
        (banner(9), "crash SIGKILL", "=   EXIT CODE: 9"),
        (banner(6), "crash SIGABRT", "=   EXIT CODE: 6"),
        (banner(8) + string(8, "Floating point exception"), "crash SIGFPE", "=   EXIT CODE: 8"),
        (banner(7), "crash SIGBUS", "=   EXIT CODE: 7"),
        (banner(4), "crash SIGILL", "=   EXIT CODE: 4"),
        # Releases before 3.2, and Intel MPI before 2019, printed the argument of exit.
        (banner(1), "error exit@1", "=   EXIT CODE: 1"),
        (banner(2), "error exit@2", "=   EXIT CODE: 2"),
        (banner(255), "error exit@255", "=   EXIT CODE: 255"),
        (banner(127), "error exit@127", "=   EXIT CODE: 127"),
        (banner(256), "error exit@1", "=   EXIT CODE: 256"),
        (banner(2) + string(2, "Interrupt"), "crash SIGINT", "=   EXIT CODE: 2"),
        # The banner shows a process that was cleaned up, the OR of all statuses the crash.
        (banner(9) + SEGV, "crash SIGSEGV", SEGV.splitlines()[0]),
        (banner(9) + banner(11, host="node2"), "crash SIGSEGV", "=   EXIT CODE: 11"),
        (SEGV, "crash SIGSEGV", SEGV.splitlines()[0]),
        (banner(15) + string(15, "Terminated"), "timeout SIGTERM", "=   EXIT CODE: 15"),
        (
            intel(0, 9, "Killed") + intel(1, 11, "Segmentation fault"),
            "crash SIGSEGV",
            "=   KILLED BY SIGNAL: 11 (Segmentation fault)",
        ),
        (intel(0, 9, "Killed") + intel(1, 15, "Terminated"), "crash SIGTERM", "=   KILLED BY SIGNAL: 15 (Terminated)"),
        (intel(0, 15, "Terminated"), "timeout SIGTERM", "=   KILLED BY SIGNAL: 15 (Terminated)"),
        (intel(1, 9, "Killed"), "crash SIGKILL", "=   KILLED BY SIGNAL: 9 (Killed)"),
    ],
)
def test_how_a_rank_ended(text: str, expected: str, quote: str) -> None:
    found = read(MpichExits(), text)
    assert {f"{one.kind.value} {one.key}" for one in found} == {expected}
    assert found[0].primary_line == quote


def test_the_process_and_its_host_are_told() -> None:
    (one,) = matches(MpichExits(), banner(11, host="node2.cluster.example"))
    assert (one.process, one.signature.hosts, one.priority) == (("node2", 5490), ("node2",), Priority.EXIT)


def test_the_rank_that_died_first_is_told_from_those_cleaned_up() -> None:
    parser = MpichExits()
    text = intel(0, 9, "Killed") + intel(1, 6, "Aborted") + intel(2, 9, "Killed")
    (found,) = read(parser, text)
    assert (found.ranks, found.signal) == ((1,), "SIGABRT")
    assert parser.exits() == (RankExit(1, signal=6),)


def test_which_of_several_killed_ranks_was_first_is_not_known() -> None:
    parser = MpichExits()
    found = read(parser, intel(0, 9, "Killed") + intel(1, 9, "Killed"))
    assert [one.ranks for one in found] == [(0,), (1,)]
    assert parser.exits() == ()


def test_a_broken_off_banner_is_a_failure_too() -> None:
    (found,) = read(MpichExits(), "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 1 RUNNING AT a\n")
    assert (found.kind, found.key, found.hosts) == (Kind.ERROR, "ended@hydra", ("a",))


@pytest.mark.parametrize(
    "text",
    [
        "[0] MPI startup(): libfabric provider: tcp",
        "Required minimum FI_VERSION: 10006",
        "==== Various sizes and limits ====",
    ],
)
def test_what_is_no_failure(text: str) -> None:
    assert read(MpichErrors(), text) == read(MpichExits(), text) == []
