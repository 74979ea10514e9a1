"""When ranks were there: what they said, against the start of their job by the clock that started it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pytest_hetgpu.analysis.judge import judge
from pytest_hetgpu.analysis.judges.base import Case
from pytest_hetgpu.analysis.rank_timeline import FEW, MOST, timeline
from pytest_hetgpu.model.outcome import Outcome, RankOutcome, Span, Timeline
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.store.encode import from_json, to_json
from tests.analysis.judges.judge_cases import BROKEN, case, evidence, hello, job, result

STARTED = 1_764_000_000.0


def ran(starts: dict[int, float | None], ends: dict[int, float], **seen: Any) -> Case:
    """A run that began at STARTED; times of its ranks are seconds after that."""
    ranks = len(starts)
    asked = job(ranks=ranks)
    asked = replace(
        asked, nodes=tuple(replace(asked.nodes[0], index=i, name=f"node{i}", ranks=ranks // 2) for i in (0, 1))
    )
    hellos = {
        rank: replace(hello(rank, size=ranks), at=None if at is None else STARTED + at) for rank, at in starts.items()
    }
    said = replace(evidence(**seen), hellos=hellos, ended={rank: STARTED + at for rank, at in ends.items()})
    return Case(asked, result(started=STARTED), said)


def test_a_rank_has_its_start_its_end_and_its_node() -> None:
    found = timeline(ran({0: 0.25, 1: 0.5}, {0: 1.75}, last_row=STARTED + 1.5), ())
    assert found == Timeline(
        spans=(Span(0, 0, 0.25, 1.75), Span(1, 1, 0.5, None)),
        nodes=("node0", "node1"),
        ranks=2,
        seconds=2.0,
        limit=60.0,
        last_row=1.5,
    )


def test_ranks_that_say_no_times_have_no_timeline() -> None:
    assert timeline(ran({0: None, 1: None}, {}), ()) is None
    assert timeline(case(), ()) is None


def test_a_clock_that_is_off_is_kept_as_it_says() -> None:
    found = timeline(ran({0: 0.1, 1: -3600.0}, {}), ())
    assert found
    assert found.spans[1] == Span(1, 1, -3600.0, None)


def test_of_many_ranks_the_first_the_odd_and_the_latest_are_kept() -> None:
    starts: dict[int, float | None] = {**dict.fromkeys(range(1000), 0.1), 500: 9.0, 900: None}
    fates = [
        RankOutcome(rank, "node0", "cpu", "crashed (SIGSEGV)" if rank == 700 else "was stopped", own=rank == 700)
        for rank in range(1000)
    ]
    fates[900] = replace(fates[900], fate="never started")
    found = timeline(ran(starts, dict.fromkeys(range(999), 10.0) | {800: 11.0}), fates)
    assert found
    kept = [one.rank for one in found.spans]
    assert kept == sorted(kept)
    assert len(kept) <= FEW
    assert {*range(8), 500, 700, 800, 900} <= set(kept)
    assert (found.ranks, found.rest) == (1000, (0.1, 10.0))
    assert [found.nodes[one.node] for one in found.spans] == [f"node{one.rank // 500}" for one in found.spans]
    assert len(json.dumps(to_json(found))) < 1500


def test_as_many_ranks_as_can_be_read_are_all_kept() -> None:
    found = timeline(ran(dict.fromkeys(range(MOST), 0.5), {}), ())
    assert found
    assert [one.rank for one in found.spans] == list(range(MOST))
    assert found.rest == (None, None)


def test_it_is_part_of_an_outcome_and_outcomes_of_earlier_versions_have_none() -> None:
    run = ran({0: 0.25, 1: 0.5}, {0: 1.75, 1: 1.8})
    outcome = judge(run.job, run.result, run.evidence)
    assert outcome.kind is Kind.PASSED
    assert outcome.timeline
    assert outcome.timeline.spans[1] == Span(1, 1, 0.5, 1.8)
    assert from_json(Outcome, json.loads(json.dumps(to_json(outcome)))) == outcome
    before = to_json(outcome)
    del before["timeline"]
    assert from_json(Outcome, before) == replace(outcome, timeline=None)


def test_a_crash_has_one_too() -> None:
    run = ran({0: 0.25, 1: 0.5}, {}, **BROKEN)
    outcome = judge(run.job, replace(run.result, returncode=139), run.evidence)
    assert outcome.kind is not Kind.PASSED
    assert outcome.timeline
    assert [one.end for one in outcome.timeline.spans] == [None, None]
