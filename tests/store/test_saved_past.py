"""`past.json`: the runs before a run, in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import history, saved_past
from pytest_hetgpu.store.cells import RunRecord
from pytest_hetgpu.store.folder import PAST
from pytest_hetgpu.store.past_runs import PastCell, PastOutcome, PastRun, PastRuns
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary
from tests.reporting.report_samples import CRASHED, cell

TOKEN = "ghp_" + "a1B2" * 9
OK = PastOutcome(Kind.PASSED, Verdict.OK, facts={"ucx": "1.18"}, nodes={"hosts": "n1 | n2"})
BAD = PastOutcome(Kind.CRASH, Verdict.NEW, "SIGSEGV@x", issue="https://example.org/1")
RUNS = tuple(PastRun(f"r{place}", 1e9 + place, {"host of pytest": "ci"}, {"matrix a": "1"}) for place in range(4))
CELLS = {PastCell("", "aws", "a"): (OK, OK, None, BAD), PastCell("", "aws", "b"): (None, BAD, BAD, OK)}


def test_runs_survive_a_round_trip(tmp_path: Path) -> None:
    past = PastRuns(RUNS, CELLS)
    saved_past.save(tmp_path, past, [("aws", "a"), ("aws", "b")])
    assert saved_past.read(tmp_path) == past


def test_equal_outcomes_are_stored_once_and_other_cells_are_not(tmp_path: Path) -> None:
    saved_past.save(tmp_path, PastRuns(RUNS, CELLS), [("aws", "a"), ("aws", "new"), ("other", "b")])
    kept = json.loads((tmp_path / PAST).read_bytes())
    assert kept["schema"] == saved_past.SCHEMA
    assert kept["cells"] == [["aws", "a", [[0, 2], [None, 1], [1, 1]]]]
    assert len(kept["outcomes"]) == 2


def test_a_secret_in_a_fact_is_redacted(tmp_path: Path) -> None:
    secret = replace(BAD, facts={"note": f"token {TOKEN}", "password": "hunter2"})
    saved_past.save(tmp_path, PastRuns(RUNS[:1], {PastCell("", "aws", "a"): (secret,)}), [("aws", "a")])
    text = (tmp_path / PAST).read_text()
    assert TOKEN not in text
    assert "hunter2" not in text
    past = saved_past.read(tmp_path)
    assert past is not None
    [(one,)] = past.cells.values()
    assert one is not None
    assert one.facts["password"] == "[redacted]"


def damaged(change: Callable[[dict[str, Any]], object]) -> bytes:
    whole: dict[str, Any] = {
        "schema": 1,
        "runs": [{"id": "r", "started": 1e9}],
        "outcomes": [{"kind": "passed", "verdict": "ok"}],
        "cells": [["aws", "a", [[0, 1]]]],
    }
    change(whole)
    return json.dumps(whole).encode()


def test_a_file_of_required_fields_only_is_read(tmp_path: Path) -> None:
    (tmp_path / PAST).write_bytes(damaged(lambda whole: whole))
    past = saved_past.read(tmp_path)
    assert past is not None
    assert past.cells == {PastCell("", "aws", "a"): (PastOutcome(Kind.PASSED, Verdict.OK),)}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
        b"7",
        damaged(lambda whole: whole.update(schema=2)),
        damaged(lambda whole: whole.pop("runs")),
        damaged(lambda whole: whole.update(outcomes=[])),
        damaged(lambda whole: whole.update(outcomes=[{"kind": "exploded", "verdict": "ok"}])),
        damaged(lambda whole: whole.update(runs=[{"id": "r"}])),
        damaged(lambda whole: whole.update(cells=[["aws", "a", [[0, 2]]]])),
        damaged(lambda whole: whole.update(cells=[["aws", "a", [[0, 10**15]]]])),
        damaged(lambda whole: whole.update(cells=[["aws", "a", [[0, -1]]]])),
        damaged(lambda whole: whole.update(cells=[["aws", "a"]])),
        damaged(lambda whole: whole.update(cells=[["aws", "a", [["0", 1]]]])),
        damaged(lambda whole: whole.update(cells=7)),
    ],
)
def test_a_damaged_or_newer_file_is_no_past(tmp_path: Path, data: bytes) -> None:
    (tmp_path / PAST).write_bytes(data)
    assert saved_past.read(tmp_path) is None


def test_no_file_is_no_past(tmp_path: Path) -> None:
    assert saved_past.read(tmp_path) is None


def test_the_runs_before_this_one_are_stored(tmp_path: Path) -> None:
    label = "mixed-ucx-send"
    record = RunRecord((cell(label, CRASHED),))
    for number in range(saved_past.NIGHTS + 6):
        one = CellSummary("aws", label, Kind.PASSED, Verdict.OK)
        run = RunSummary(f"r{number:02}", "", 1.7e9 + (number - 63) * 86_400, "ci", "0.1", (), (one,))
        history.put(tmp_path / "history.sqlite", run)
    saved_past.save_earlier_runs(tmp_path, record, tmp_path / "history.sqlite")
    past = saved_past.read(tmp_path)
    assert past is not None
    # Two runs are later, and only the newest of those before are looked at.
    assert [past.runs[0].id, past.runs[-1].id, len(past.runs)] == ["r04", "r63", saved_past.NIGHTS]
    assert [len(outcomes) for outcomes in past.cells.values()] == [saved_past.NIGHTS]
