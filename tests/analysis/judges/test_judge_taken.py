"""Preemption by Slurm: lost nodes, and jobs that were preempted, cancelled or over time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_hetgpu.analysis.judge import judge
from pytest_hetgpu.analysis.judges.base import FinishedRun
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind
from tests.analysis.judges.judge_cases import BROKEN, NOTHING, SEGV, case, signature

NODE = signature(Kind.NETWORK_FAILURE, "node-failure@slurm")
PREEMPTED = signature(Kind.TIMEOUT, "preempted@slurm")
TIME = signature(Kind.TIMEOUT, "time-limit@slurm")
LOST = {"returncode": 255, "lost": ("node localhost (one on c1) was lost: Slurm job 1 was preempted by another job",)}


def outcome(of: FinishedRun) -> Outcome:
    return judge(of.job, of.result, of.evidence)


@pytest.mark.parametrize("taken", [NODE, PREEMPTED, TIME])
@pytest.mark.parametrize("number", [9, 15])
@pytest.mark.parametrize("first", [True, False])
def test_ranks_that_slurm_stopped_are_no_crash(taken: Any, number: int, first: bool) -> None:
    """Expect no crash: Slurm sends SIGTERM, and SIGKILL after KillWait; srun may report ranks before the reason."""
    died = signature(key="SIGTERM" if number == 15 else "SIGKILL")
    found = (died, taken) if first else (taken, died)
    got = outcome(case(run=LOST, exits=(RankExit(0, signal=number),), signatures=found, **BROKEN))
    assert (got.kind, got.signature) == (taken.kind, taken)


@pytest.mark.parametrize("code", [143, 137])
def test_a_launcher_that_tells_of_slurms_signal_is_no_crash(code: int) -> None:
    got = outcome(case(run={**LOST, "returncode": code}, signatures=(PREEMPTED,), **BROKEN))
    assert (got.kind, got.signature) == (Kind.TIMEOUT, PREEMPTED)


def test_a_rank_that_crashed_by_itself_stays_a_crash() -> None:
    exits = (RankExit(0, signal=9), RankExit(1, signal=11))
    got = outcome(case(run=LOST, exits=exits, signatures=(PREEMPTED, signature()), **BROKEN))
    assert (got.kind, got.signature and got.signature.key) == (Kind.CRASH, SEGV)


def test_what_the_launcher_felt_of_lost_nodes_is_not_the_cause() -> None:
    """Expect no cause in mpirun's `Connection closed by 10.190.32.12 port 60993` before it started ranks."""
    closed = signature(Kind.LAUNCH_FAILURE, "closed-by-host@ssh")
    got = outcome(case(run=LOST, signatures=(closed, PREEMPTED), **NOTHING))
    assert (got.kind, got.signature) == (Kind.TIMEOUT, PREEMPTED)


def test_a_failure_that_slurm_was_told_to_clean_up_after_stays_the_failure() -> None:
    """Keep the failure: no node was lost, so the step was cancelled because of it."""
    closed = signature(Kind.TRANSPORT_UNAVAILABLE, "no-transport@ucx")
    cancelled = signature(Kind.TIMEOUT, "cancelled@slurm")
    got = outcome(case(run={"returncode": 1}, signatures=(closed, cancelled), **BROKEN))
    assert (got.kind, got.signature) == (Kind.TRANSPORT_UNAVAILABLE, closed)


ENGINE = signature(Kind.NETWORK_FAILURE, "engine-lost@docker")
UNPLUGGED = signature(Kind.NETWORK_FAILURE, "lost@interface")
STUCK = signature(Kind.HANG, "stuck@MPI_Allreduce", primary_line="hetgpu: all ranks wait")
CUT = {"returncode": None, "timed_out": True, "quiet": 2.0}


def test_a_container_engine_that_went_away_is_the_cause_and_said_to_have_been_away() -> None:
    killed = signature(key="SIGKILL")
    got = outcome(case(run=LOST, exits=(RankExit(0, signal=9),), signatures=(killed, ENGINE), **BROKEN))
    assert (got.kind, got.signature, got.away) == (Kind.NETWORK_FAILURE, ENGINE, "engine")


def test_a_rank_that_crashed_before_its_engine_went_away_stays_a_crash() -> None:
    exits = (RankExit(1, signal=11),)
    got = outcome(case(run=LOST, exits=exits, signatures=(ENGINE, signature()), **BROKEN))
    assert (got.kind, got.away) == (Kind.CRASH, "")


def test_ranks_that_wait_behind_an_interface_that_is_gone_are_no_hang() -> None:
    run = {**CUT, "unplugged": ("eth0 of node1 is gone",)}
    got = outcome(case(run=run, signatures=(STUCK, UNPLUGGED), **BROKEN))
    assert (got.kind, got.signature) == (Kind.NETWORK_FAILURE, UNPLUGGED)


def test_without_that_they_are() -> None:
    got = outcome(case(run=CUT, signatures=(STUCK,), **BROKEN))
    assert got.kind is Kind.HANG
    # Only our own inspection of the node counts, whatever a program prints.
    assert outcome(case(run=CUT, signatures=(STUCK, UNPLUGGED), **BROKEN)).kind is Kind.HANG


def test_a_crash_beside_a_lost_interface_stays_a_crash() -> None:
    run = {**CUT, "unplugged": ("eth0 of node1 is gone",)}
    exits = (RankExit(1, signal=11),)
    got = outcome(case(run=run, exits=exits, signatures=(signature(), UNPLUGGED), **BROKEN))
    assert got.kind is Kind.CRASH


def test_a_launcher_that_is_gone_after_a_failure_is_a_stack_that_is_away() -> None:
    run = {"returncode": 1, "launcher_gone": True}
    assert outcome(case(run=run, **BROKEN)).away == "stack"
    assert outcome(case(run=run, signatures=(signature(),), **BROKEN)).away == "stack"
    assert outcome(case(run={**run, "returncode": 0})).away == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cannot start /opt/bin/mpirun: no such file", "stack"),
        ("cannot start /opt/bin/mpirun: Stale file handle", "stack"),
        ("cannot start /opt/bin/mpirun: not an executable file (permission denied)", ""),
        ("cannot start /opt/bin/other: no such file", ""),
    ],
)
def test_a_launcher_that_was_there_and_is_gone_is_a_stack_that_is_away(line: str, expected: str) -> None:
    gone = signature(Kind.LAUNCH_FAILURE, "no-program@mpirun", primary_line=line)
    of = case(run={"returncode": 127}, signatures=(gone,), **NOTHING)
    of = replace(of, job=replace(of.job, command=Command(("/opt/bin/mpirun",))))
    got = outcome(of)
    assert (got.kind, got.away) == (Kind.LAUNCH_FAILURE, expected)
