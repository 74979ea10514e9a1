"""Since when the cells of a run fail: the lines of its reports, and the properties of its JUnit file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.reporting.since import Pasts, pasts
from pytest_hetgpu.store import saved_past
from pytest_hetgpu.store.cells import RunRecord
from pytest_hetgpu.store.folder import PAST
from pytest_hetgpu.store.past_runs import PastCell, PastOutcome, PastRun, PastRuns
from tests.reporting.report_samples import CRASHED, FIXED, KEY, KNOWN, NOT_RUN, PASSED, SIGNATURE, cell

LABEL = "mixed-ucx-send"
NIGHT = 86_400.0
GOOD = {"ucx": "1.18.0"}
OTHER = "SIGBUS@libfabric.so"


def outcome(letter: str) -> PastOutcome | None:
    """Return an outcome of an earlier run: it works, fails as in this run, fails in another way, or is missing."""
    stack = {"stack": "Open MPI v5.0.11"}
    if letter == ".":
        return PastOutcome(Kind.PASSED, Verdict.OK, facts={**GOOD, **stack})
    if letter == "-":
        return PastOutcome(Kind.SKIPPED, Verdict.NOT_RUN)
    return PastOutcome(Kind.CRASH, Verdict.NEW, KEY if letter == "N" else OTHER, stack) if letter in "Nn" else None


def found(folder: Path, letters: str, present: Outcome, scenario: str = LABEL) -> Pasts:
    """Return the histories of a run after others, in which a cell had these outcomes."""
    runs = tuple(PastRun(f"r{place}", 1.7e9 - NIGHT * (len(letters) - place)) for place in range(len(letters)))
    past = PastRuns(runs, {PastCell("", "aws", scenario): tuple(map(outcome, letters))})
    saved_past.save(folder, past, [("aws", scenario)])
    one = pasts(RunRecord((cell(LABEL, present),)), folder)
    assert one is not None
    return one


def line(folder: Path, letters: str, present: Outcome, scenario: str = LABEL) -> str:
    return found(folder, letters, present, scenario).line(cell(LABEL, present))


def properties(folder: Path, letters: str, present: Outcome) -> dict[str, str]:
    return dict(found(folder, letters, present).properties(cell(LABEL, present)))


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("......", ["since this run, was ok for 6 runs"]),
        (".", ["since this run, was ok for 1 run"]),
        ("....NN", ["since 2023-11-12 22:13 UTC (r4), was ok for 4 runs"]),
        ("...nnn", ["like this since this run", "since 2023-11-11 22:13 UTC (r3), was ok for 3 runs"]),
        ("nnn", [f"since this run, was crash {OTHER} for 3 runs"]),
        ("NNN", ["the same in all 4 runs"]),
        ("---", ["never run before"]),
        ("   ", ["never run before"]),
        (".N.N..", ["flaky: 3 of 7 runs fail, 16 to 75 %"]),
    ],
)
def test_a_failure_has_its_beginning_and_what_changed_then(
    tmp_path: Path, letters: str, expected: Sequence[str]
) -> None:
    assert line(tmp_path, letters, CRASHED).split("; ")[: len(expected)] == list(expected)


def test_facts_that_failed_ranks_did_not_report_are_no_change(tmp_path: Path) -> None:
    assert "ucx 1.18.0 became 1.20.0" in line(tmp_path, "....", replace(CRASHED, facts={"ucx": "1.20.0"}))
    assert "ucx 1.18.0" not in line(tmp_path, "....", replace(CRASHED, facts={}))


def test_a_cell_that_works_again_has_a_line(tmp_path: Path) -> None:
    assert line(tmp_path, "NNNN", FIXED).startswith(f"since this run, was crash {KEY} for 4 runs")


def test_other_verdicts_have_no_line(tmp_path: Path) -> None:
    assert [line(tmp_path, "....", one) for one in (PASSED, KNOWN, NOT_RUN)] == ["", "", ""]


def test_a_cell_that_earlier_runs_lack(tmp_path: Path) -> None:
    assert line(tmp_path, "....", CRASHED, "another-ucx-send") == "never run before"
    one = found(tmp_path, "....", CRASHED)
    absent = cell("absent-ucx-send", CRASHED)
    assert (one.line(absent), list(one.properties(absent))) == ("", [])


def test_many_changes_and_long_names_are_cut(tmp_path: Path) -> None:
    facts = {f"fact{number}": "x" * 500 for number in range(9)}
    many = replace(CRASHED, facts=facts, signature=replace(SIGNATURE, key="S" * 500))
    parts = line(tmp_path, "....", many).split("; ")
    assert parts[-1] == "7 more changes"
    assert len(parts) == 6
    assert max(map(len, parts)) <= 120


def test_properties_of_a_failure_a_flaky_cell_and_one_that_works(tmp_path: Path) -> None:
    assert properties(tmp_path, "....", CRASHED) == {"since": "2023-11-14T22:13:20Z"}
    assert properties(tmp_path, "..NN", CRASHED) == {"since": "2023-11-12T22:13:20Z"}
    assert properties(tmp_path, "..nn", CRASHED) == {"since": "2023-11-14T22:13:20Z"}
    assert properties(tmp_path, "..nn", KNOWN) == {"since": "2023-11-14T22:13:20Z"}
    assert properties(tmp_path, ".N.N..", PASSED) == {"flake_rate": "0.286"}
    assert properties(tmp_path, "....", PASSED) == {}
    assert properties(tmp_path, "....", NOT_RUN) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 2}', '{"schema": 1, "runs": 7}', "null"])
def test_damaged_or_missing_runs_are_a_first_run(tmp_path: Path, text: str) -> None:
    record = RunRecord((cell(LABEL, CRASHED),))
    assert pasts(record, tmp_path) is None
    (tmp_path / PAST).write_text(text)
    assert pasts(record, tmp_path) is None


def test_a_first_run_has_nothing_before_it(tmp_path: Path) -> None:
    saved_past.save(tmp_path, PastRuns(()), [("aws", LABEL)])
    assert pasts(RunRecord((cell(LABEL, CRASHED),)), tmp_path) is None
