"""What MPICH and its launcher print of failures."""

from __future__ import annotations

from pytest_hetgpu.evidence import Signature
from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures.base import Dialect
from pytest_hetgpu.signatures.mpich_errors import MpichErrors
from pytest_hetgpu.signatures.mpich_exits import MpichExits

BANNER = """\
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 5490 RUNNING AT vm
=   EXIT CODE: 11
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
"""
KILLED = "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)\n"


def read(dialect: Dialect, text: str) -> list[Signature]:
    for number, line in enumerate(text.splitlines(), 1):
        dialect.feed(line, number)
    return [reading.signature for reading in dialect.finish()]


def test_a_rank_that_died_of_a_signal() -> None:
    (found,) = read(MpichExits(), BANNER + KILLED)
    assert (found.kind, found.key, found.signal, found.line) == (Kind.CRASH, "SIGSEGV", "SIGSEGV", 8)


def test_a_rank_that_ended_by_itself_with_the_same_number() -> None:
    (found,) = read(MpichExits(), BANNER)
    assert (found.kind, found.key, found.signal, found.line) == (Kind.ERROR, "exit@11", None, 4)


def test_the_process_is_told() -> None:
    dialect = MpichExits()
    read(dialect, BANNER + KILLED)
    assert [reading.process for reading in dialect.finish()][:1] == [("vm", 5490)]


def test_error_stack_and_abort() -> None:
    text = "Abort(472531855) on node 0 (rank 0 in comm 0): Fatal error in internal_Init: Other MPI error, error stack:"
    (found,) = read(MpichErrors(), text)
    assert (found.key, found.entry_point, found.ranks) == ("Other-MPI-error@Init", "Init", (0,))
    (found,) = read(MpichErrors(), "Abort(3) on node 1: application called MPI_Abort(MPI_COMM_WORLD, 3) - process 1")
    assert found.key == "MPI_Abort@3"
