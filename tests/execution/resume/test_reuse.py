"""What is kept of an earlier part, and what is run again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.execution.resume.reuse import describe, remarks, reusable
from pytest_hetgpu.model.outcome import STOPPED, Finding, Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.cells import CellRecord, CellState, RunRecord
from pytest_hetgpu.store.disk_errors import JUDGE
from tests.reporting.report_samples import (
    CHANGED,
    CRASHED,
    FIXED,
    KNOWN,
    NOT_RUN,
    PASSED,
    UNREAD,
    cell,
    result,
    scenario,
)

CUT = Outcome(
    Kind.ERROR, Verdict.NEW, findings=(Finding("completeness", Kind.ERROR, "cut short by SIGTERM: no verdict"),)
)
FULL = Outcome(Kind.ERROR, Verdict.NEW, findings=(Finding(JUDGE, Kind.ERROR, "not recorded: disk full"),))
STOP = Outcome(Kind.UNKNOWN, Verdict.NOT_RUN, findings=(Finding("completeness", Kind.UNKNOWN, f"{STOPPED} (SIGTERM)"),))
NAME = "a-b-c"


@pytest.mark.parametrize("outcome", [PASSED, CRASHED, KNOWN, CHANGED, FIXED, UNREAD])
def test_every_verdict_is_kept(outcome: Outcome) -> None:
    assert reusable(RunRecord((cell(NAME, outcome),))) == {("aws", NAME): cell(NAME, outcome)}


@pytest.mark.parametrize(
    "again",
    [
        cell(NAME, UNREAD, state=CellState.STARTED),
        cell(NAME, UNREAD, state=CellState.FINISHED),
        cell(NAME, NOT_RUN, state=CellState.PLANNED),
        cell(NAME, NOT_RUN, state=CellState.SKIPPED),
        cell(NAME, NOT_RUN),
        cell(NAME, CUT),
        cell(NAME, STOP),
        cell(NAME, CRASHED, result=replace(result(), interrupted="SIGINT")),
        cell(NAME, FULL),
        cell(NAME, replace(UNREAD, away="engine")),
        cell(NAME, replace(UNREAD, away="stack")),
        cell(NAME, UNREAD, result=replace(result(), spent="the run's time was spent")),
    ],
)
def test_what_came_to_no_verdict_of_its_own_is_run_again(again: CellRecord) -> None:
    assert reusable(RunRecord((again,))) == {}


def test_what_was_expected_is_kept_whatever_was_away() -> None:
    found = cell(NAME, replace(KNOWN, away="stack"))
    assert reusable(RunRecord((found,))) == {("aws", NAME): found}


def test_it_is_said_in_numbers() -> None:
    cells = [
        replace(scenario(f"a-b-{name}"), excluded=None) for name in ("ok", "flight", "full", "stopped", "absent", "new")
    ]
    excluded = scenario("a-b-excluded")
    record = RunRecord(
        (
            cell("a-b-ok", PASSED),
            cell("a-b-flight", UNREAD, state=CellState.STARTED),
            cell("a-b-full", FULL),
            cell("a-b-stopped", STOP),
            cell("a-b-absent", NOT_RUN, state=CellState.SKIPPED),
        )
    )
    assert describe("reports/x", [*cells, excluded], record) == (
        "resumed reports/x: 1 of 6 cells are kept, 5 to run "
        "(2 were in flight, 1 could not be recorded, 1 was skipped for what was not here)"
    )
    assert describe("x", [cells[0], excluded], record) == "resumed x: 1 of 1 cells are kept, nothing is left to run"


def test_a_damaged_journal_is_said() -> None:
    assert list(remarks(RunRecord(()))) == []
    assert list(remarks(RunRecord((), unread={"damaged": 1}))) == [
        "1 line of its journal could not be read: what is recorded only there is run again"
    ]
