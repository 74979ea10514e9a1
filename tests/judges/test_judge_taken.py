"""What Slurm took away: nodes that were lost, a job that was preempted or cancelled or whose time was over."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_hetgpu.evidence import Outcome, RankExit
from pytest_hetgpu.judge import judge
from pytest_hetgpu.judges.base import Case
from pytest_hetgpu.model import Kind
from tests.judges.judge_cases import BROKEN, NOTHING, SEGV, case, signature

NODE = signature(Kind.NETWORK_FAILURE, "node-failure@slurm")
PREEMPTED = signature(Kind.TIMEOUT, "preempted@slurm")
TIME = signature(Kind.TIMEOUT, "time-limit@slurm")
LOST = {"returncode": 255, "lost": ("node localhost (one on c1) was lost: Slurm job 1 was preempted by another job",)}


def outcome(of: Case) -> Outcome:
    return judge(of.job, of.result, of.evidence)


@pytest.mark.parametrize("taken", [NODE, PREEMPTED, TIME])
@pytest.mark.parametrize("number", [9, 15])
@pytest.mark.parametrize("first", [True, False])
def test_ranks_that_slurm_stopped_are_no_crash(taken: Any, number: int, first: bool) -> None:
    """Slurm sends SIGTERM, and SIGKILL after KillWait; srun may tell of the ranks before it tells why."""
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
    """mpirun that had not started its ranks yet said `Connection closed by 10.190.32.12 port 60993`."""
    closed = signature(Kind.LAUNCH_FAILURE, "closed-by-host@ssh")
    got = outcome(case(run=LOST, signatures=(closed, PREEMPTED), **NOTHING))
    assert (got.kind, got.signature) == (Kind.TIMEOUT, PREEMPTED)


def test_a_failure_that_slurm_was_told_to_clean_up_after_stays_the_failure() -> None:
    """No node was lost: who cancelled the step did it for what had failed."""
    closed = signature(Kind.TRANSPORT_UNAVAILABLE, "no-transport@ucx")
    cancelled = signature(Kind.TIMEOUT, "cancelled@slurm")
    got = outcome(case(run={"returncode": 1}, signatures=(closed, cancelled), **BROKEN))
    assert (got.kind, got.signature) == (Kind.TRANSPORT_UNAVAILABLE, closed)
