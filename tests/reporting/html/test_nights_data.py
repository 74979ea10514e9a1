"""The data of the page of nights: cleaned, cut, redacted, and stored once."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.analysis.nights.records import CourseShape, LevelStep, SeriesChange
from pytest_hetgpu.analysis.nights.speeds import SpeedHistory
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.reporting.html.nights_data import LONGEST_TEXT, nights_data
from pytest_hetgpu.reporting.html.page import render_nights
from pytest_hetgpu.store.past_runs import PastCell, PastOutcome, PastRun, PastRuns
from pytest_hetgpu.store.past_speeds import PastSpeed, SpeedQuantity
from tests.reporting.html.browser_samples import EVIL

HOSTILE = f"\x1b[31mred\x00\u202e {EVIL} {'x' * 5000}"
TOKEN = "ghp_" + "a1B2" * 9
OK = PastOutcome(Kind.PASSED, Verdict.OK, facts={"ucx": "1.18", "wire": "2.9 GB/s (pump)"}, nodes={"hosts": "n1 | n2"})
BAD = PastOutcome(Kind.CRASH, Verdict.NEW, "SIGSEGV@x", nodes={"hosts": "n3"}, issue="https://example.org/1")
CELL = PastCell("", "aws", "near-ucx-send", {"placement": "near"})


def runs(count: int, **more: Any) -> tuple[PastRun, ...]:
    return tuple(PastRun(f"r{place}", 1.7e9 + 86_400 * place, **more) for place in range(count))


def data(past: PastRuns, *speeds: SpeedHistory, beside: Path = Path()) -> dict[str, Any]:
    return nights_data(past, speeds, "", beside)


def speed(*values: float | None, unit: str = "us") -> SpeedHistory:
    step = LevelStep(1, 1.0, 2.0, 0.001)
    quantity = SpeedQuantity("latency", 8, "float32", "", unit)
    change = SeriesChange(CourseShape.STEPS, len(values), 2.0, steps=(step,))
    return SpeedHistory(CELL, PastSpeed(quantity, values), change, (tuple(f"fact{i} a became b" for i in range(90)),))


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []


def test_hostile_texts_are_cleaned_cut_and_redacted() -> None:
    secret = f"token {TOKEN}"
    evil = PastOutcome(Kind.CRASH, Verdict.NEW, HOSTILE, {HOSTILE: HOSTILE, "a": secret}, {"hosts": HOSTILE})
    cell = PastCell(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: HOSTILE})
    found = data(
        PastRuns(
            (
                PastRun(HOSTILE, 1e9, {HOSTILE: secret}, {"b": HOSTILE}),
                PastRun("r", 2e9, folder=HOSTILE),
            ),
            {cell: (replace(evil, issue=HOSTILE), OK)},
        )
    )
    every = texts(found)
    assert all(text.isprintable() for text in every)
    assert not any("\u202e" in text for text in every)
    assert max(map(len, every)) <= 1000
    assert max(len(text) for text in every if text != found["cells"][0]["scenario"]) <= LONGEST_TEXT
    assert TOKEN not in json.dumps(found)
    page = render_nights(found)
    assert EVIL not in page


def test_facts_with_the_name_of_a_secret_are_redacted() -> None:
    one = replace(OK, facts={"password": "hunter2"})
    found = data(PastRuns(runs(2, shared={"api_token": "hunter2"}), {CELL: (one, one)}))
    assert found["outcomes"][0]["facts"] == {"password": "[redacted]"}
    assert "hunter2" not in json.dumps(found)


def test_cells_that_are_cut_to_one_name_keep_their_own() -> None:
    cells = {PastCell("", "aws", f"{'x' * 400}{number}"): (OK,) for number in range(3)}
    names = [one["id"] for one in data(PastRuns(runs(1), cells))["cells"]]
    assert len(set(names)) == 3
    assert names[1] == f"{names[0]} (2)"


def test_equal_outcomes_and_settings_are_stored_once() -> None:
    other = replace(OK, facts={**OK.facts, "wire": "2.4 GB/s (pump)"})
    past = PastRuns(
        runs(4, shared={"host of pytest": "ci1"}),
        {CELL: (OK, replace(OK), other, None), PastCell("", "aws", "b"): (OK, OK, BAD, BAD)},
    )
    found = data(past)
    assert [one["verdict"] for one in found["outcomes"]] == ["ok", "new"]
    assert "wire" not in found["outcomes"][0]["facts"]
    assert [one["outcomes"] for one in found["cells"]] == [[[0, 3], [None, 1]], [[0, 2], [1, 2]]]
    assert {run["setting"] for run in found["runs"]} == {0}
    assert found["settings"] == [{"shared": {"host of pytest": "ci1"}, "basis": {}}]
    assert found["numbers"]["wires"] == [[2.9, 2.9, 2.4, None], [2.9, 2.9, None, None]]


def test_failures_and_hosts_name_cells_by_their_place() -> None:
    lone = PastCell("", "aws", "far-ucx-send", {"placement": "far"})
    found = data(PastRuns(runs(3), {CELL: (OK, OK, OK), lone: (BAD, BAD, BAD)}))
    [failure] = found["failures"]
    assert (failure["cells"], failure["state"], failure["hosts"]) == ([1], "open", ["n3"])
    assert failure["issue"] == "https://example.org/1"
    assert found["hosts"] == [
        {"name": "n1", "cells": [0], "failures": []},
        {"name": "n2", "cells": [0], "failures": []},
        {"name": "n3", "cells": [1], "failures": ["crash SIGSEGV@x"]},
    ]


def test_numbers_that_json_lacks_are_left_out() -> None:
    wire = replace(OK, facts={"wire": "nan GB/s"})
    past = PastRuns(runs(4), {CELL: (wire, replace(OK, facts={"wire": "inf"}), OK, replace(OK, facts={"wire": "?"}))})
    found = data(past, speed(11.23456, float("inf"), None, float("nan")))
    assert found["numbers"] == {"speeds": [[11.23, None, None, None]], "wires": [[None, None, 2.9, None]]}
    page = render_nights(found)
    facts = re.search(r'id="facts">([^<]*)<', page)
    assert facts
    assert json.loads(facts[1], parse_constant=pytest.fail)["cells"][0]["wire"] == 0
    packed = re.search(r'id="numbers">([^<]*)<', page)
    assert packed
    assert json.loads(gzip.decompress(base64.b64decode(packed[1]))) == found["numbers"]


def test_steps_have_their_line_and_some_of_the_changes() -> None:
    [one] = data(PastRuns(runs(4), {CELL: (OK,) * 4}), speed(1.0, 2.0, 2.0, 2.0))["cells"]
    [course] = one["speeds"]
    assert (course["name"], course["unit"], course["shape"], course["values"]) == (
        "latency at 8 float32",
        "us",
        "steps",
        0,
    )
    [step] = course["steps"]
    assert (step["night"], step["before"], step["after"], len(step["changes"])) == (1, 1.0, 2.0, 30)
    assert step["line"].endswith("100 % more than 1 us")


def test_the_page_of_a_kept_run_is_linked_from_where_the_page_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "reports" / "a b"
    kept.mkdir(parents=True)
    (kept / "index.html").touch()
    two = {"matrix aws": "1", "matrix lab": "2"}
    past = PastRuns(
        (
            PastRun("r0", 1e9, two, folder=str(kept)),
            PastRun("r1", 2e9, folder=str(tmp_path / "gone")),
            PastRun("r2", 3e9),
        ),
        {CELL: (OK, OK, OK)},
    )
    (tmp_path / "pages" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for beside, to in (
        (tmp_path / "pages" / "deep", "../../reports/a%20b/index.html"),
        (Path("pages"), "../reports/a%20b/index.html"),
        (Path(), "reports/a%20b/index.html"),
        (kept, "index.html"),
    ):
        found = data(past, beside=beside)["runs"]
        assert [run.get("page") for run in found] == [to, None, None]
        assert found[0]["several"]


def test_a_run_has_the_site_of_its_cells() -> None:
    past = PastRuns(
        runs(3), {PastCell("lab", "aws", "a"): (None, OK, None), PastCell("aws", "aws", "a"): (OK, None, None)}
    )
    found = data(past)
    assert [run.get("site") for run in found["runs"]] == ["aws", "lab", None]
    assert [one["id"] for one in found["cells"]] == ["lab: a", "aws: a"]


def test_a_history_without_runs_and_one_of_ten_thousand() -> None:
    empty = data(PastRuns(()))
    assert (empty["runs"], empty["cells"], empty["failures"]) == ([], [], [])
    assert "0 runs of nothing" in render_nights(empty)
    many = data(PastRuns(runs(10_000), {CELL: (OK,) * 9999 + (BAD,), PastCell("", "aws", "b"): (None,) * 10_000}))
    assert many["cells"][0]["outcomes"] == [[0, 9999], [1, 1]]
    assert many["cells"][1]["outcomes"] == [[None, 10_000]]
    assert many["cells"][1]["state"] == "not run"
    assert len(render_nights(many)) < 2_000_000
