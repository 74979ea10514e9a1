"""Whether the ranks ran, how many, and on which library."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_hetgpu.analysis.judges.base import Precedence
from pytest_hetgpu.analysis.judges.communicator import CommunicatorJudge, is_under_prefix, matches_stack
from pytest_hetgpu.model.job import Stack
from pytest_hetgpu.model.records import Hello
from pytest_hetgpu.model.verdict import Kind
from tests.analysis.judges.judge_cases import NOTHING, STACK, case, hello


def test_the_world_that_was_asked_for() -> None:
    assert list(CommunicatorJudge().evaluate(case())) == []


def test_no_rank_reported() -> None:
    (rated,) = CommunicatorJudge().evaluate(case(**NOTHING))
    assert (rated.finding.kind, rated.precedence) == (Kind.LAUNCH_FAILURE, Precedence.INDIRECT)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        (
            {"library": "Open MPI v4.1.4, package: Debian"},
            ["Open MPI v4.1.4", "/opt/stack/lib/libmpi.so.40", "Open MPI 5.0.11"],
        ),
        ({"library": "MPICH Version: 5.0.2"}, ["MPICH Version: 5.0.2", "Open MPI 5.0.11"]),
        (
            {"libmpi": "/usr/lib/x86_64-linux-gnu/libmpi.so.40"},
            ["/usr/lib/x86_64-linux-gnu/libmpi.so.40", "/opt/stack"],
        ),
        ({"libmpi": "/opt/stack-old/lib/libmpi.so.40"}, ["/opt/stack-old/lib/libmpi.so.40"]),
    ],
)
def test_another_library_is_named_with_the_one_asked_for(changes: dict[str, Any], names: list[str]) -> None:
    (rated,) = CommunicatorJudge().evaluate(case(hellos={0: hello(0), 1: hello(1, **changes)}))
    assert (rated.finding.kind, rated.precedence) == (Kind.LAUNCH_FAILURE, Precedence.OVERRIDING)
    assert "rank 1" in rated.finding.why
    assert all(name in rated.finding.why for name in names)
    assert "each report" not in rated.finding.why


def test_worlds_of_one_under_the_launcher_of_another_mpi_are_named() -> None:
    (rated, *_) = CommunicatorJudge().evaluate(case(hellos={0: hello(0, size=1, library="MPICH Version: 5.0.2")}))
    assert rated.precedence is Precedence.OVERRIDING
    assert rated.finding.why.endswith(
        f"2 ranks each report rank 0 of 1: mpirun of {STACK.name} started a program linked with MPICH Version: 5.0.2"
    )


@pytest.mark.parametrize("hellos", [{0: hello(0, size=1)}, {0: hello(0, size=4), 1: hello(1, size=4)}])
def test_another_world_size_is_a_wrong_result(hellos: dict[int, Hello]) -> None:
    (rated,) = CommunicatorJudge().evaluate(case(hellos=hellos))
    assert rated.finding.kind is Kind.WRONG_RESULT
    assert "asked for were 2 ranks" in rated.finding.why
    assert ("every rank alone" in rated.finding.why) is (hellos[0].size == 1)


@pytest.mark.parametrize(
    ("vendor", "version", "library", "same"),
    [
        ("Open MPI", "5.0.11", "Open MPI v5.0.11, package: Debian", True),
        ("Open MPI", "5.0", "Open MPI v5.0.11, package: Debian", True),
        ("Open MPI", "5.0.1", "Open MPI v5.0.11, package: Debian", False),
        ("Open MPI", "4.1.8", "Open MPI v5.0.11, package: x, ident: 4.1.8", False),
        ("MPICH", "5.0.2", "MPICH Version: 5.0.2 MPICH Release date: Thu Aug 1", True),
        ("Intel MPI", "2021.18", "Intel(R) MPI Library 2021.18 for Linux* OS", True),
        ("MPICH", "5.0.2", "", False),
    ],
)
def test_library_text_against_stack(vendor: str, version: str, library: str, same: bool) -> None:
    stack = Stack("s", vendor, version, "/opt", "mpirun", "python")
    assert matches_stack(stack, library) is same


@pytest.mark.parametrize(
    ("prefix", "libmpi", "inside"),
    [
        ("/opt/stack", "/opt/stack/lib/libmpi.so.40", True),
        ("/opt/stack/", "/opt/stack//lib/./libmpi.so.40", True),
        ("/opt/stack", "/opt/stack2/lib/libmpi.so.40", False),
        ("/usr", "/lib/x86_64-linux-gnu/libmpi.so.40", True),
        ("", "/opt/other/libmpi.so.40", True),
        (STACK.prefix, "", True),
    ],
)
def test_paths_are_compared_as_paths(prefix: str, libmpi: str, inside: bool) -> None:
    assert is_under_prefix(prefix, libmpi) is inside
