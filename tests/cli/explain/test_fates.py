"""What became of each rank, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_hetgpu.analysis.judges.base import Case
from pytest_hetgpu.analysis.rank_outcomes import fates
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.job import Accelerator, Hardware, Job, Node
from pytest_hetgpu.model.outcome import Finding, RankOutcome
from pytest_hetgpu.model.rank_outcome import describe
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind
from tests.analysis.judges.judge_cases import BROKEN, evidence, hello, job, result, signature


def told(*signatures: Signature, run: dict[str, Any] | None = None, **seen: Any) -> str:
    findings = [Finding("signature", one.kind, "why", one) for one in signatures]
    case = Case(one_rank_a_node(), result(**{"returncode": 1, **(run or {})}), evidence(**{**BROKEN, **seen}))
    return describe(fates(case, findings))


def one_rank_a_node(*platforms: str) -> Job:
    nodes = [
        Node(place, Hardware(name, Accelerator(name)), name, 1)
        for place, name in enumerate(platforms or ("cpu", "cpu"))
    ]
    return replace(job(), nodes=tuple(nodes))


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"done": frozenset({0}), "exits": (RankExit(1, signal=11),)}, "rank 0 finished, rank 1 crashed (SIGSEGV)"),
        ({"exits": (RankExit(1, signal=9),)}, "rank 0 was stopped, rank 1 was killed (SIGKILL)"),
        ({"exits": (RankExit(0, signal=15), RankExit(1, code=3))}, "rank 0 was killed (SIGTERM), rank 1 exited with 3"),
        ({"exits": (RankExit(1, code=5, aborted=True),)}, "rank 0 was stopped, rank 1 called MPI_Abort (5)"),
        ({"hellos": {0: hello(0)}}, "rank 0 was stopped, rank 1 never started"),
        ({"hellos": {}}, "ranks 0, 1 never started"),
    ],
)
def test_what_launcher_and_ranks_say(seen: dict[str, Any], words: str) -> None:
    assert told(**seen) == words


def test_a_text_that_names_a_rank() -> None:
    assert told(signature(ranks=(1,))) == "rank 0 was stopped, rank 1 crashed (SIGSEGV)"
    assert told(signature(Kind.ERROR, "ValueError@a.py", ranks=(0,))) == "rank 0 failed, rank 1 was stopped"


def test_of_a_run_that_was_stopped_the_signals_are_ours() -> None:
    stopped = {"timed_out": True, "returncode": -9}
    assert told(exits=(RankExit(1, signal=9),), run=stopped) == "ranks 0, 1 were stopped at the time limit"


@pytest.mark.parametrize(
    ("kinds", "run", "words"),
    [
        ((Kind.HANG,), {"timed_out": True}, "ranks 0, 1 were stuck and stopped"),
        ((Kind.TIMEOUT,), {"timed_out": True}, "ranks 0, 1 were stopped at the time limit"),
        # The first to say so decides: what stacks tell comes before a text about waiting.
        ((Kind.TIMEOUT, Kind.HANG), {"timed_out": True}, "ranks 0, 1 were stopped at the time limit"),
        ((Kind.ERROR, Kind.HANG), {"timed_out": True}, "ranks 0, 1 were stuck and stopped"),
        ((Kind.ERROR,), {"interrupted": "SIGINT", "returncode": -15}, "ranks 0, 1 were stopped"),
    ],
)
def test_only_of_a_hang_the_ranks_were_stuck(kinds: tuple[Kind, ...], run: dict[str, Any], words: str) -> None:
    assert told(*(signature(kind, "key", ranks=()) for kind in kinds), run=run) == words


def test_a_rank_that_finished_before_the_time_limit_was_not_stopped() -> None:
    slow = {"timed_out": True, "returncode": -9}
    words = "rank 0 finished, rank 1 was stopped at the time limit"
    assert told(signature(Kind.TIMEOUT, "slow", ranks=(0, 1)), done=frozenset({0}), run=slow) == words


def test_vendors_are_named_where_there_are_several() -> None:
    mixed = one_rank_a_node("cuda", "rocm")
    seen = evidence(**{**BROKEN, "done": frozenset({0})}, exits=(RankExit(1, signal=11),))
    found = fates(Case(mixed, result(returncode=139), seen), ())
    assert describe(found) == "CUDA rank 0 finished, ROCm rank 1 crashed (SIGSEGV)"
    assert [(one.node, one.platform, one.own) for one in found] == [("cuda", "cuda", False), ("rocm", "rocm", True)]


def test_a_good_run_needs_no_words() -> None:
    assert fates(Case(job(), result(), evidence()), ()) == ()
    assert describe(()) == ""


def test_many_ranks_are_counted() -> None:
    many = [RankOutcome(rank, "n", "cpu", "was stopped") for rank in range(12)]
    assert describe(many) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more were stopped"
