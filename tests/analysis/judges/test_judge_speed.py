"""Findings and notes on a run's speed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from pytest_hetgpu.analysis.judge import JUDGES, judge_run
from pytest_hetgpu.analysis.judges.base import FinishedRun
from pytest_hetgpu.extensions.readers.base import measurements
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.outcome import Outcome, ProgramOutput
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, Quantity
from pytest_hetgpu.model.records import MessagePoint, Row
from pytest_hetgpu.model.thresholds import Threshold
from pytest_hetgpu.model.verdict import Kind, Verdict
from tests.analysis.judges.judge_cases import case, expectation, signature

SMALL, LARGE, LARGER = (
    MessagePoint(8, "float32"),
    MessagePoint(1 << 20, "float32"),
    MessagePoint(4 << 20, "float32", "in"),
)
POINTS = (SMALL, LARGE, LARGER)
SECONDS = {SMALL: 1e-5, LARGE: 1e-3, LARGER: 4e-3}
STEADY = (0.99, 0.995, 1.0, 1.005, 1.01)
FROM = "baseline 20261120-020006-02b3"


def bus(source: str, point: MessagePoint, *seconds: float, **changes: Any) -> Threshold:
    """Return a limit for the bus bandwidth of two ranks, from times of one all-reduce."""
    return Threshold("busbw", source, tuple(point.size / one / 1e9 for one in seconds), "GB/s", **changes)


def limits(**changes: Any) -> dict[MessagePoint, tuple[Threshold, ...]]:
    made = {p: bus(FROM, p, *(SECONDS[p] * share for share in STEADY)) for p in POINTS}
    made[SMALL] = Threshold("latency", FROM, tuple(SECONDS[SMALL] * share * 1e6 for share in STEADY))
    return {point: (replace(limit, **changes),) for point, limit in made.items()}


def launch(
    factors: dict[MessagePoint, float] | None = None, run: dict[str, Any] | None = None, **demand: Any
) -> FinishedRun:
    """Return the rows of a launch in which some points take longer."""
    longer = factors or {}
    rows = tuple(
        Row("allreduce", point, 2, 20, SECONDS[point] * share * longer.get(point, 1.0), repeat)
        for repeat, share in enumerate(STEADY)
        for point in POINTS
    )
    checks = {rank: dict.fromkeys(POINTS, 0) for rank in range(2)}
    asked = {"points": POINTS, "limits": limits(), **demand}
    return case(asked, run, rows=rows, checks=checks)


def outcome(first: FinishedRun, *further: FinishedRun) -> Outcome:
    return judge_run(replace(first, further=further), JUDGES, lambda _: ())


def test_as_fast_as_before() -> None:
    found = outcome(launch())
    assert (found.kind, found.why, found.notes, found.inconclusive) == (Kind.PASSED, "", (), False)
    assert outcome(launch(limits={})).kind is Kind.PASSED


def test_hosts_that_others_were_not_kept_off_are_noted_whatever_the_verdict() -> None:
    alone = {"leased_here": {"gpu1": "no python3 there"}}
    for slower in (1.0, 1.5):
        note, *_ = outcome(launch({LARGE: slower}, alone)).notes
        said = "gpu1 was leased on this machine only, so that jobs started elsewhere were not kept off it"
        assert note == f"{said} (no python3 there)"


def test_a_trouble_with_speed_costs_no_other_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_hetgpu.analysis.judge.speed.notes", Mock(side_effect=ZeroDivisionError))
    (note,) = outcome(launch({}, {"left_out": 9})).notes
    assert note.startswith("9 bytes ")


def test_what_is_slower_must_be_launched_again() -> None:
    found = outcome(launch({LARGE: 1.25}))
    assert (found.kind, found.verdict, found.inconclusive) == (Kind.UNKNOWN, Verdict.NEW, True)
    assert found.why.startswith("seems slow: 1M float32: busbw 0.839 GB/s")
    assert found.why.endswith("it was not launched again to make sure")


def test_slow_names_size_expected_got_and_how_sure() -> None:
    again = launch({LARGE: 1.25})
    found = outcome(again, again)
    assert (found.kind, found.verdict, found.inconclusive, found.signature) == (Kind.SLOW, Verdict.NEW, False, None)
    assert found.why == (
        f"1M float32: busbw 0.839 GB/s, expected at least 0.944 (1.05 -10 %) from {FROM}; "
        "10 repeats in 2 launches, spread 2 %, p=0.001"
    )


def test_the_surest_first_then_the_others() -> None:
    again = launch({SMALL: 1.2, LARGE: 1.25, LARGER: 1.5})
    why = outcome(again, again).why
    assert why.startswith("4M float32 in place: busbw 0.699 GB/s")
    assert why.endswith("; also 1M float32 (-20 %), 8 float32 (+20 %)")


def test_a_latency_is_more_than_it_was() -> None:
    again = launch({SMALL: 2.0})
    assert outcome(again, again).why.startswith("8 float32: latency 20 us, expected at most 11 (10 +10 %) from")


def test_a_barrier_has_no_size_to_name() -> None:
    point = MessagePoint(0, "none")
    rows = tuple(Row("barrier", point, 2, 20, 2e-6, repeat) for repeat in range(5))
    held = {point: (Threshold("latency", "m.yaml:3", (1.0,), tolerance=0.0),)}
    asked = {"points": (point,), "operation": "barrier", "limits": held}
    again = case(asked, rows=rows, checks={rank: {point: 0} for rank in range(2)})
    assert outcome(again, again).why.startswith("latency 2 us, expected at most 1 from m.yaml:3; 10 repeats")


def test_launched_again_it_was_not_slow() -> None:
    found = outcome(launch({LARGE: 1.25}), launch())
    assert (found.kind, found.verdict) == (Kind.PASSED, Verdict.OK)
    (note,) = found.notes
    assert note.startswith("seemed slow: 1M float32: busbw 0.839 GB/s")
    assert note.endswith("5 repeats in 1 launch, spread 2 %, p=0.012; launched again it was not")


def test_what_scatters_too_much_passes_with_a_note() -> None:
    noisy = {LARGE: (bus(FROM, LARGE, *(1e-3 * share for share in (0.7, 0.8, 1.0, 1.2, 1.3))),)}
    again = launch({LARGE: 1.25}, limits=noisy)
    found = outcome(again, again, again)
    assert (found.kind, found.inconclusive) == (Kind.PASSED, False)
    (note,) = found.notes
    assert note.startswith("may be slow: 1M float32")
    assert note.endswith("; it scatters too much to decide")


def test_scatter_is_no_doubt_where_every_repeat_is_many_times_too_slow() -> None:
    # 5 to 10 GB/s in each of eight launches of one repeat, where 9000 GB/s were expected.
    wanted = {LARGE: (Threshold("busbw", "m.yaml:8", (9000.0,), "GB/s", tolerance=0.1),)}

    def once(seconds: float) -> FinishedRun:
        rows = (Row("allreduce", LARGE, 2, 20, seconds),)
        return case({"points": (LARGE,), "limits": wanted}, None, rows=rows, checks={0: {LARGE: 0}, 1: {LARGE: 0}})

    first, *further = [once(1e-4 * share) for share in (1.0, 3.4, 1.2, 1.0, 3.3, 1.1, 2.9, 3.0)]
    assert outcome(first, *further).kind is Kind.SLOW


def test_versions_that_changed_are_named() -> None:
    before = {"openmpi": "5.0.10", "stack": "openmpi-5", "ucx": "1.18"}
    again = launch({LARGE: 1.25}, before=before, facts={"stack": "openmpi-5"})
    assert outcome(again, again).why.endswith("; since then openmpi 5.0.10 became 5.0.11")


def test_slowness_yields_to_everything_else() -> None:
    slow = launch({LARGE: 1.25})
    survivors = launch({LARGE: 1.25}, {"survivors": ("python (7) on node1",)})
    found = outcome(survivors, slow)
    assert (found.kind, [finding.judge for finding in found.findings]) == (Kind.ERROR, ["completeness", "speed"])
    assert not found.inconclusive
    wrong = replace(slow, evidence=replace(slow.evidence, wrong=("rank 1: 3 wrong elements",)))
    assert outcome(wrong, slow).kind is Kind.WRONG_RESULT
    unproven = replace(slow, evidence=replace(slow.evidence, transports=()))
    assert outcome(unproven, slow).kind is Kind.UNKNOWN


def test_numbers_of_a_run_that_failed_say_nothing() -> None:
    broken = launch({LARGE: 1.25}, {"returncode": 1})
    found = outcome(broken)
    assert (found.kind, found.inconclusive, found.notes) == (Kind.ERROR, False, ())
    assert [finding.judge for finding in found.findings] == ["completeness"]


@pytest.mark.parametrize(
    ("run", "seen", "kind", "said"),
    [
        ({"returncode": 3}, {}, Kind.ERROR, "exit code 3"),
        ({"returncode": 139}, {"signatures": (signature(),)}, Kind.CRASH, "SIGSEGV@libuct.so!uct_tcp_ep_am_short"),
        ({"timed_out": True, "returncode": None}, {}, Kind.TIMEOUT, "stopped after 2 s"),
    ],
)
def test_a_further_launch_that_fails_is_a_failure(
    run: dict[str, Any], seen: dict[str, Any], kind: Kind, said: str
) -> None:
    again = launch({LARGE: 1.25}, run)
    found = outcome(launch({LARGE: 1.25}), replace(again, evidence=replace(again.evidence, **seen)))
    assert (found.kind, found.inconclusive) == (kind, False)
    assert found.why.startswith("it seemed slow, was launched again, and then failed: ")
    assert said in found.why


def test_what_could_not_be_compared_has_not_passed() -> None:
    lacking = limits(values=(), lacks="2 ranks before and 4 after")
    found = outcome(launch(limits=lacking))
    assert (found.kind, found.inconclusive) == (Kind.UNKNOWN, False)
    assert found.why == (
        f"not compared at 8 float32, 1M float32, 4M float32 in place with {FROM}: 2 ranks before and 4 after"
    )


def test_what_nobody_is_owed_is_a_note() -> None:
    found = outcome(launch(limits=limits(values=(), lacks="it has no such cell", owed=False)))
    assert found.kind is Kind.PASSED
    assert found.notes == (
        f"not compared at 8 float32, 1M float32, 4M float32 in place with {FROM}: it has no such cell",
    )


def test_a_known_slowness() -> None:
    slow = launch({LARGE: 1.25}, expectations=(expectation(Kind.SLOW),))
    assert outcome(slow, slow).verdict is Verdict.KNOWN
    assert outcome(launch(expectations=(expectation(Kind.SLOW),))).verdict is Verdict.FIXED
    assert outcome(launch({LARGE: 1.25}, {"returncode": 1}, expectations=(expectation(Kind.SLOW),))).verdict is (
        Verdict.CHANGED
    )


def test_a_limit_for_what_the_operation_does_not_have() -> None:
    """Judge a job of another version, which may hold values unknown to this one."""
    odd = {LARGE: (bus(FROM, LARGE, 1e-3, tolerance=0.0),)}
    again = launch({LARGE: 2.0}, limits=odd, operation="strange")
    strange = tuple(replace(row, operation="strange") for row in again.evidence.rows)
    again = replace(again, evidence=replace(again.evidence, rows=strange))
    found = outcome(again, again)
    assert found.kind is Kind.UNKNOWN
    assert "this run has no busbw there" in found.why


def test_limits_of_an_earlier_release_are_no_pass() -> None:
    """That release stored seconds in another field."""
    found = outcome(launch(limits=limits(values=())))
    assert found.kind is Kind.UNKNOWN
    assert "it is of an earlier release" in found.why


ANY = MessagePoint(1 << 20, "")
OSU = ExternalProgram(("osu_allreduce",), "osu", ranks=2, check=False)


def foreign(limit: Threshold, rows: tuple[Row, ...], tool: str = "osu_allreduce 7.4") -> Outcome:
    """Return the outcome of an external program that must measure one point of any type."""
    shown = tuple(
        BenchmarkRow(row.operation, row.point, row.ranks, {"latency": Quantity(row.seconds, "s")}) for row in rows
    )
    reading = BenchmarkResult("osu", rows=shown)
    told = ProgramOutput(reading, tool, "host", None, measurements=measurements(reading))
    point = LARGE if limit.tool else ANY
    asked = {"points": (ANY,), "external": OSU, "limits": {point: (limit,)}}
    again = case(asked, rows=rows, program=told, checks={})
    return outcome(again, *[again] * 7)


def test_a_foreign_programs_point_of_any_type_is_compared() -> None:
    rows = (Row("allreduce", LARGE, 2, 20, 2e-3),)
    assert foreign(bus("m.yaml:3", LARGE, 1e-3), rows).kind is Kind.SLOW
    assert foreign(bus("m.yaml:3", LARGE, 3e-3), rows).kind is Kind.PASSED


def test_another_release_of_a_foreign_program_is_not_compared() -> None:
    rows = (Row("allreduce", LARGE, 2, 20, 2e-3),)
    limit = bus(FROM, LARGE, 1e-3, tool="osu_allreduce 7.2")
    found = foreign(limit, rows)
    assert found.kind is Kind.UNKNOWN
    assert found.why.endswith(f"{FROM}: tool osu_allreduce 7.2 before and osu_allreduce 7.4 after")
    assert foreign(limit, rows, "osu_allreduce 7.2").kind is Kind.SLOW


@pytest.mark.parametrize("row", [Row("iallreduce", SMALL, 2, 20, 2e-3), Row("allreduce", LARGE, 4, 20, 2e-3)])
def test_what_no_row_tells_has_not_passed(row: Row) -> None:
    found = foreign(bus("m.yaml:3", LARGE, 1.0), (row,))
    assert found.kind in (Kind.UNKNOWN, Kind.WRONG_RESULT)
