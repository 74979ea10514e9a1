"""Ends of runs, and missing results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_hetgpu.analysis.judge import judge
from pytest_hetgpu.analysis.judges.base import FinishedRun, Precedence, cause_of, has_failed, missing_results
from pytest_hetgpu.analysis.judges.completeness import CompletenessJudge
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.model.records import RankExit, Row
from pytest_hetgpu.model.verdict import Kind
from tests.analysis.judges.judge_cases import BROKEN, NOTHING, POINTS, case, hello, signature


def kinds(of: FinishedRun) -> list[tuple[Kind, Precedence]]:
    return [(rated.finding.kind, rated.precedence) for rated in CompletenessJudge().evaluate(of)]


def test_a_complete_run() -> None:
    assert kinds(case()) == []
    assert not has_failed(case())


@pytest.mark.parametrize(
    ("run", "seen", "kind", "precedence", "why"),
    [
        ({"returncode": 3}, {}, Kind.ERROR, Precedence.INDIRECT, "exit code 3"),
        ({"returncode": 139}, {}, Kind.CRASH, Precedence.DEFINITE, "exit code 139: a rank died of SIGSEGV"),
        ({"returncode": -9}, {}, Kind.CRASH, Precedence.DEFINITE, "the launcher died of SIGKILL"),
        (
            {"returncode": 137},
            {"exits": (RankExit(1, signal=9),)},
            Kind.CRASH,
            Precedence.DEFINITE,
            "rank 1 died of SIGKILL",
        ),
        ({}, {"exits": (RankExit(1, signal=11),)}, Kind.CRASH, Precedence.DEFINITE, "rank 1 died of SIGSEGV"),
        (
            {},
            {"exits": (RankExit(1, code=5, aborted=True),)},
            Kind.ERROR,
            Precedence.INDIRECT,
            "rank 1 called MPI_Abort with 5",
        ),
        ({}, {"exits": (RankExit(1),)}, Kind.ERROR, Precedence.INDIRECT, "rank 1 ended without MPI_Finalize"),
        ({"returncode": None}, {}, Kind.ERROR, Precedence.INDIRECT, "no exit status"),
        (
            {"interrupted": "SIGINT", "returncode": -15},
            {},
            Kind.UNKNOWN,
            Precedence.OVERRIDING,
            "the run was stopped (SIGINT)",
        ),
        ({"survivors": ("python (77)",)}, {}, Kind.ERROR, Precedence.INDIRECT, "python (77)"),
        ({}, {"done": frozenset({0})}, Kind.ERROR, Precedence.INDIRECT, "rank 1 did not reach the end"),
        ({}, {"hellos": {0: hello(0)}}, Kind.ERROR, Precedence.INDIRECT, "rank 1 never reported"),
        (
            {},
            {"rows": ()},
            Kind.UNKNOWN,
            Precedence.INDIRECT,
            "no measurement of allreduce at points 8,float32, 1024,float32",
        ),
        (
            {},
            {"rows": (Row("allreduce", POINTS[0], 2, 1, 1.0),)},
            Kind.UNKNOWN,
            Precedence.INDIRECT,
            "at point 1024,float32",
        ),
        (
            {},
            {"rows": tuple(Row("send_recv", p, 2, 1, 1.0) for p in POINTS)},
            Kind.UNKNOWN,
            Precedence.INDIRECT,
            "no measurement",
        ),
        (
            {},
            {"rows": tuple(Row("allreduce", p, 1, 1, 1.0) for p in POINTS)},
            Kind.UNKNOWN,
            Precedence.INDIRECT,
            "no measurement",
        ),
        (
            {},
            {"checks": {0: dict.fromkeys(POINTS, 0)}},
            Kind.UNKNOWN,
            Precedence.INDIRECT,
            "not verified by every rank",
        ),
        (
            {},
            {"checks": {0: dict.fromkeys(POINTS, 0), 1: {POINTS[0]: 0}}},
            Kind.UNKNOWN,
            Precedence.INDIRECT,
            "1024,float32",
        ),
    ],
)
def test_what_counts_first(
    run: dict[str, Any], seen: dict[str, Any], kind: Kind, precedence: Precedence, why: str
) -> None:
    first = next(CompletenessJudge().evaluate(case(run=run, **seen)))
    assert (first.finding.kind, first.precedence) == (kind, precedence)
    assert why in first.finding.why


@pytest.mark.parametrize(
    ("quiet", "kind"), [(60.0, Kind.HANG), (30.0, Kind.HANG), (29.0, Kind.TIMEOUT), (0.0, Kind.TIMEOUT)]
)
def test_silence_for_half_of_the_time_is_a_hang(quiet: float, kind: Kind) -> None:
    stopped = {"timed_out": True, "seconds": 60.0, "quiet": quiet, "returncode": -15}
    first = next(CompletenessJudge().evaluate(case(run=stopped, **BROKEN)))
    assert (first.finding.kind, first.precedence) == (kind, Precedence.DEFINITE)


def test_a_stuck_run_says_when_it_was_last_heard() -> None:
    stopped = {"timed_out": True, "seconds": 60.0, "returncode": -15}
    said = [next(CompletenessJudge().evaluate(case(run={**stopped, "quiet": q}))).finding.why for q in (58.0, 3.0)]
    assert said == [
        "stopped after 60 s, without output for the last 58 s",
        "stopped after 60 s, last output 3 s before",
    ]


@pytest.mark.parametrize(("how", "kind"), [("stuck", Kind.HANG), ("slow", Kind.TIMEOUT)])
@pytest.mark.parametrize("quiet", [0.0, 60.0])
def test_what_the_stacks_told_decides_whether_it_hung(how: str, kind: Kind, quiet: float) -> None:
    sentence = "rank 0 waits in MPI_Allreduce (reduce.py:31), rank 1 is in time.sleep (fault.py:80)"
    line = f"hetgpu: {how} after 60 s, nothing moved: {sentence}"
    told = signature(kind, "stuck@Allreduce+hang", primary_line=line, detail=sentence)
    stopped = {"timed_out": True, "seconds": 60.0, "quiet": quiet, "returncode": -15}
    first = next(CompletenessJudge().evaluate(case(run=stopped, signatures=(told,), **BROKEN)))
    assert (first.finding.kind, first.precedence, first.finding.signature) == (kind, Precedence.DEFINITE, told)
    assert first.finding.why.startswith("stopped after 60 s, ")
    assert first.finding.why.endswith(sentence)


@pytest.mark.parametrize("signal", [2, 9, 15])
def test_signals_of_our_own_stopping_are_no_crash(signal: int) -> None:
    stopped = {"timed_out": True, "seconds": 60.0, "quiet": 60.0, "returncode": -signal}
    assert Kind.CRASH not in [
        kind for kind, _ in kinds(case(run=stopped, exits=(RankExit(0, signal=signal),), **BROKEN))
    ]


def test_a_rank_terminated_because_another_ended_is_no_crash() -> None:
    exits = (RankExit(0, signal=15), RankExit(1, code=3))
    assert Kind.CRASH not in [kind for kind, _ in kinds(case(run={"returncode": 3}, exits=exits, **BROKEN))]
    assert kinds(case(run={"returncode": 143}, exits=exits[:1], **BROKEN))[0] == (Kind.CRASH, Precedence.DEFINITE)
    crashed = case(run={"returncode": 139}, exits=(RankExit(0, signal=15), RankExit(1, signal=11)), **BROKEN)
    died = [rated.finding.why for rated in CompletenessJudge().evaluate(crashed) if rated.finding.kind is Kind.CRASH]
    assert died == ["rank 1 died of SIGSEGV"]


@pytest.mark.parametrize("code", [131, 135, 183])
def test_a_launcher_that_fails_to_start_ranks_reports_no_signal(code: int) -> None:
    assert kinds(case(run={"returncode": code}, **NOTHING))[0] == (Kind.ERROR, Precedence.INDIRECT)


def test_a_launcher_that_fell_over_a_rank_explains_nothing() -> None:
    """PRRTE 3.0 aborts now and then while it reports a rank that could not be started."""
    missing = signature(Kind.LAUNCH_FAILURE, "no-program@python3")
    fell = signature(key="SIGABRT@Assertion-new_prio-failed")
    assert cause_of(case(run={"returncode": -6}, signatures=(missing, fell), **NOTHING)) == missing
    assert cause_of(case(run={"returncode": -6}, signatures=(fell,), **NOTHING)) == fell
    assert cause_of(case(run={"returncode": 139}, signatures=(missing, fell), **BROKEN)) == fell


def test_memory_that_ran_out_explains_a_death() -> None:
    oom = signature(Kind.OUT_OF_MEMORY, "oom-kill@kernel")
    killed = case(
        run={"returncode": 137}, exits=(RankExit(0, signal=9),), signatures=(oom, signature(key="SIGKILL")), **BROKEN
    )
    assert kinds(killed)[0] == (Kind.CRASH, Precedence.INDIRECT)
    assert cause_of(killed) == oom


def test_long_lists_are_cut() -> None:
    lacks = missing_results(case({"ranks": 8}, hellos={}))
    assert lacks[0] == "ranks 0, 1, 2, 3, 4 and 3 more never reported"
    assert missing_results(case({"ranks": 5}, hellos={}))[0] == "ranks 0, 1, 2, 3, 4 never reported"


def test_unmeasured_work_owes_checks_only() -> None:
    assert kinds(case({"measured": False}, rows=())) == []
    assert kinds(case({"measured": False}, rows=(), checks={}))[0] == (Kind.UNKNOWN, Precedence.INDIRECT)


SPENT: dict[str, Any] = {
    "spent": "the run's time was spent (--hetgpu-budget 60)",
    "timed_out": True,
    "returncode": None,
}


def test_a_run_that_its_budget_stopped_has_no_verdict_however_silent_it_was() -> None:
    stopped = {**SPENT, "seconds": 30.0, "quiet": 29.0}
    (rated, *_) = CompletenessJudge().evaluate(case(run=stopped, hellos={}, rows=(), done=frozenset()))
    assert (rated.finding.kind, rated.precedence) == (Kind.UNKNOWN, Precedence.OVERRIDING)
    assert rated.finding.why == "the run's time was spent (--hetgpu-budget 60): no verdict after 30 s"
    assert Kind.HANG not in [kind for kind, _ in kinds(case(run=stopped))]


def test_a_failure_that_was_there_before_the_budget_ended_stays_one() -> None:
    for seen in ({"exits": (RankExit(1, signal=11),)}, {"wrong": ("rank 1: 3 wrong elements",)}):
        (rated, *_) = CompletenessJudge().evaluate(case(run=SPENT, **seen))
        assert (rated.finding.kind, rated.precedence) == (Kind.UNKNOWN, Precedence.INDIRECT)


def test_what_is_owed_may_be_in_output_that_was_not_kept() -> None:
    assert kinds(case(run={"left_out": 9})) == []
    first, *_ = CompletenessJudge().evaluate(case(run={"left_out": 9}, rows=()))
    assert first.finding.why.startswith("9 bytes of its output were not kept (--hetgpu-output)")


@pytest.mark.parametrize(
    "name", ["ssh", "srun", "orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy", "hydra_bstrap_pr", "mpirun"]
)
@pytest.mark.parametrize("place", ["", " on node1"])
def test_a_process_of_a_launcher_that_outlives_it_is_a_note(name: str, place: str) -> None:
    ended = case(run={"survivors": (f"{name} (401){place}",)})
    assert kinds(ended) == []
    found = judge(ended.job, ended.result, ended.evidence)
    assert found.kind is Kind.PASSED
    assert found.notes == (f"processes of the launcher outlived it and were stopped: {name} (401){place}",)


@pytest.mark.parametrize(
    "survivor",
    [
        "python (77)",
        "ssh_worker (77)",
        "my ssh (77) on node1",
        "(77)",
        "ssh (77), which KILL did not end",
        "ssh, which KILL did not end (77) on node1",
    ],
)
def test_other_survivors_stay_an_error_beside_those_of_a_launcher(survivor: str) -> None:
    ended = case(run={"survivors": ("ssh (401)", survivor)})
    (told,) = CompletenessJudge().evaluate(ended)
    assert (told.finding.kind, told.precedence) == (Kind.ERROR, Precedence.INDIRECT)
    assert told.finding.why.endswith(f"had to be stopped: {survivor}")


def test_a_program_with_the_name_of_a_launchers_process_is_a_rank() -> None:
    ended = case(run={"survivors": ("orted (77)",)})
    job = replace(ended.job, command=Command(("mpirun", "-np", "2", "/opt/app/orted")))
    assert kinds(replace(ended, job=job)) == [(Kind.ERROR, Precedence.INDIRECT)]


def test_processes_of_a_launcher_that_was_stopped_are_no_news() -> None:
    stopped = case(run={"survivors": ("orted (7)",), "timed_out": True, "returncode": -15, "seconds": 60.0})
    assert not [note for note in judge(stopped.job, stopped.result, stopped.evidence).notes if "orted" in note]
