"""Whether MPI windows took the path of the transport, which no proof of the point-to-point layer shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.analysis.judge import judge
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.transport_classes import ON_HOST, UNKNOWN, Connection, OneSided, connection
from pytest_hetgpu.model.verdict import Kind
from tests.analysis.judges.judge_cases import evidence, job, result

TCP = ("osc/rdma:tcp",)
BENCHMARK, PROGRAM = OneSided(TCP, benchmark=True, logged=True), OneSided(TCP, logged=True)
SHARED, COPIED = connection(ON_HOST, ["osc/sm"]), connection(ON_HOST, ["osc/rdma:memory"])
OVER_TCP = connection(UNKNOWN, TCP)
MAYBE = connection(ON_HOST, ["ofi/tcp"], ["ofi/tcp"])


def asked(windows: OneSided) -> Job:
    made = job()
    return replace(made, demand=replace(made.demand, one_sided=windows))


def verdict(windows: OneSided, *seen: Connection) -> tuple[Kind, str, tuple[str, ...]]:
    outcome = judge(asked(windows), result(), evidence(windows=seen))
    return outcome.kind, outcome.why, outcome.notes


@pytest.mark.parametrize(
    ("windows", "seen"),
    [
        (BENCHMARK, [OVER_TCP]),
        (OneSided(TCP, benchmark=True, pinned=True), []),
        (PROGRAM, []),
        (PROGRAM, [OVER_TCP]),
        (OneSided(("*",)), []),
        (OneSided(("*",), logged=True), [COPIED]),
        (OneSided(TCP, pinned=True), []),
    ],
)
def test_a_proven_path_passes_without_a_word(windows: OneSided, seen: list[Connection]) -> None:
    assert verdict(windows, *seen) == (Kind.PASSED, "", ())


@pytest.mark.parametrize(
    ("windows", "seen", "used"),
    [
        (BENCHMARK, [SHARED], "osc/sm"),
        (BENCHMARK, [OVER_TCP, COPIED], "osc/rdma:memory"),
        (PROGRAM, [COPIED], "osc/rdma:memory"),
        (PROGRAM, [COPIED, SHARED], "osc/rdma:memory"),
    ],
)
def test_windows_over_another_component_are_a_silent_fallback(
    windows: OneSided, seen: list[Connection], used: str
) -> None:
    kind, why, _ = verdict(windows, *seen)
    assert kind is Kind.TRANSPORT_UNAVAILABLE
    assert why.startswith("silent fallback: asked for ")
    assert why.endswith(f"MPI windows used {used} (possible: osc/rdma:tcp)")


@pytest.mark.parametrize("seen", [[], [MAYBE]])
def test_a_benchmark_of_windows_without_proof_is_unknown(seen: list[Connection]) -> None:
    assert verdict(BENCHMARK, *seen)[0] is Kind.UNKNOWN


def test_a_program_may_share_memory_of_its_own_and_the_cell_says_so() -> None:
    kind, _, notes = verdict(PROGRAM, SHARED)
    assert kind is Kind.PASSED
    assert notes == ("ranks shared memory by MPI_Win_allocate_shared (osc/sm), beside the transport",)


def test_a_program_whose_windows_nobody_would_see_says_so() -> None:
    kind, _, notes = verdict(OneSided(TCP))
    assert kind is Kind.PASSED
    assert notes == (
        "the transport of MPI windows, if the program uses any, is not proven: `osc` is neither logged nor pinned",
    )


def test_components_of_windows_are_among_what_carried_the_data() -> None:
    outcome = judge(asked(PROGRAM), result(), evidence(windows=(SHARED,), transports=("ucx/tcp",)))
    assert outcome.transports == ("osc/sm", "ucx/tcp")
    assert outcome.carried[ON_HOST] == ("osc/sm",)
