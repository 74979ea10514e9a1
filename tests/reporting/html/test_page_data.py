"""The data of the page: complete for a reader, without anything that must not leave the machine."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.model.outcome import LinkBandwidth, RankOutcome, Span, Timeline
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.thresholds import Threshold
from pytest_hetgpu.reporting import report
from pytest_hetgpu.reporting.excerpt import AFTER, BEFORE, excerpt
from pytest_hetgpu.reporting.html import page
from pytest_hetgpu.reporting.html.page_data import page_data
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CRASHED, KEY, KNOWN, PASSED, RERUN, job, run_cell, scenario

SECRET = "ghp_" + "s3cr3t12" * 5
LARGE = MessagePoint(1 << 20, "float32")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "reports")


def facts(folder: RunFolder, **outcomes: Any) -> dict[str, dict[str, Any]]:
    """Return each cell's data by its transport."""
    with closing(Journal(folder.path, "main")) as journal:
        for transport, outcome in outcomes.items():
            run_cell(folder, journal, f"mixed-{transport}-allreduce", outcome, b"first\n" * 70 + b"last\n")
        journal.skipped(scenario("mixed-nccl-ddp"), "no GPU")
    found = page_data(read_run(folder.path), folder, RERUN, (), None)
    return {cell["axes"]["transport"]: cell for cell in found["cells"]}


def test_a_failure_has_its_line_in_its_log_and_its_ranks(folder: RunFolder) -> None:
    fates = (
        RankOutcome(0, "node0", "rocm", "crashed (SIGSEGV)", own=True),
        RankOutcome(1, "node1", "cuda", "was stopped"),
    )
    cell = facts(folder, ucx=replace(CRASHED, rank_outcomes=fates))["ucx"]
    assert (cell["key"], cell["line"], cell["log"]) == (KEY, 66, "scenarios/mixed-ucx-allreduce/output.log")
    numbers = [number for number, _ in cell["excerpt"]]
    assert numbers == list(range(66 - BEFORE, 72))
    assert cell["ranks"] == [
        [0, "node0", "rocm", "crashed (SIGSEGV)", True],
        [1, "node1", "cuda", "was stopped", False],
    ]
    assert [finding[0] for finding in cell["findings"]] == ["signature", "completeness"]
    assert cell["again"] == "pytest --hetgpu-cell mixed-ucx-allreduce"


def test_what_works_says_nothing_empty_and_what_never_ran_why(folder: RunFolder) -> None:
    found = facts(folder, ob1=PASSED, ucx=KNOWN)
    assert not {"why", "findings", "key", "excerpt", "limits"} & found["ob1"].keys()
    assert found["ob1"]["series"][0] == {
        "metric": "busbw",
        "dtype": "float32",
        "place": "",
        "unit": "GB/s",
        "points": [[1 << 20, 1.25, 1.25, 1.25]],
    }
    assert found["ucx"]["expected"].startswith("crash ")
    assert (found["nccl"]["headline"], found["nccl"]["verdict"]) == ("no GPU", "not_run")


def test_repeats_limits_and_the_wire_go_with_the_curve(folder: RunFolder) -> None:
    repeated = Measurement("busbw", 2.0, "GB/s", LARGE, 2, (1.9, 2.0, 2.1))
    cell = facts(folder, ob1=replace(PASSED, measurements=(repeated,), wire=LinkBandwidth(4.0, "pump 1")))["ob1"]
    assert cell["series"][0]["points"] == [[1 << 20, 2.0, 1.9, 2.1]]
    assert cell["wire"] == {"gbs": 4.0, "told": "pump 1"}
    demand = job().demand
    limits = {LARGE: (Threshold("busbw", "m.yaml:3", (1.0486,)), Threshold("busbw", "other", lacks="it failed"))}
    folder.write_job(replace(job("mixed-ob1-allreduce"), demand=replace(demand, limits=limits)))
    again = page_data(read_run(folder.path), folder, RERUN, (), None)["cells"][0]
    assert again["limits"] == [{"source": "m.yaml:3", "metric": "busbw", "points": [[1 << 20, 1.0486]]}]


def test_a_timeline_has_a_row_a_rank_with_what_became_of_it(folder: RunFolder) -> None:
    fates = (
        RankOutcome(0, "node0", "rocm", "crashed (SIGSEGV)", own=True),
        RankOutcome(1, "node1", "cuda", "was stopped"),
    )
    line = Timeline((Span(0, 0, 0.25, None), Span(1, 1, 0.5, None)), ("node0", "node1"), 2, 2.0, 60.0)
    done = replace(line, spans=(Span(0, 0, 0.25, 1.75), Span(1, 1, 0.0, 1.8)), last_row=1.5)
    found = facts(
        folder, ucx=replace(CRASHED, rank_outcomes=fates, timeline=line), ob1=replace(PASSED, timeline=done), ofi=PASSED
    )
    assert found["ucx"]["timeline"] == {
        "seconds": 2.0,
        "limit": 60.0,
        "rows": [
            [0, "node0", 0.25, None, "crashed (SIGSEGV)", "failed"],
            [1, "node1", 0.5, None, "was stopped", "stopped"],
        ],
    }
    assert found["ob1"]["timeline"]["rows"][1] == [1, "node1", 0.0, 1.8, "finished", "finished"]
    assert found["ob1"]["timeline"]["row"] == 1.5
    assert "timeline" not in found["ofi"]


def test_clocks_that_cannot_be_right_are_named(folder: RunFolder) -> None:
    spans = (Span(0, 0, -0.4, 1.0), Span(1, 1, -7.25, -6.0), Span(2, 2, 0.1, 31.0))
    line = Timeline(spans, ("node0", "node1", "node2"), 100, 2.0, rest=(0.1, 1.9))
    told = facts(folder, ucx=replace(PASSED, timeline=line))["ucx"]["timeline"]
    assert told["rest"] == [97, 0.1, 1.9]
    assert told["notes"] == [
        "A rank of node1 reports a start 7.2 s before the job's: the clock of node1 is behind",
        "A rank of node2 reports a time 29.0 s after the job's end: the clock of node2 is ahead",
    ]


@pytest.mark.parametrize("line", [0, 1, 5, 400, 10**9])
def test_excerpts_are_short_wherever_the_line_is(tmp_path: Path, line: int) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"".join(b"line %d\n" % number for number in range(1, 401)))
    found = excerpt(log, line)
    assert len(found) <= BEFORE + AFTER + 1
    assert all(text == f"line {number}" for number, text in found)
    assert (line in [number for number, _ in found]) is (1 <= line <= 400)
    assert excerpt(tmp_path / "gone", line) == []


def test_a_key_over_several_lines_is_taken_out_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a\n-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nAAAA\n-----END RSA PRIVATE KEY-----\nb\n")
    shown = json.dumps(excerpt(log, 3))
    assert "MIIEow" not in shown
    assert "[redacted]" in shown


def test_secrets_and_terminal_codes_stay_out(folder: RunFolder) -> None:
    cell = replace(CRASHED, why=f"refused {SECRET} \x1b[31m", stack=SECRET, notes=(SECRET,), facts={"x": SECRET})
    shown = json.dumps(facts(folder, ucx=cell))
    assert "s3cr3t" not in shown
    assert "\\u001b" not in shown


def test_the_page_holds_hostile_text_as_data_only(folder: RunFolder) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}"
    with closing(Journal(folder.path, "main")) as journal:
        run_cell(folder, journal, "mixed-ucx-evil", replace(CRASHED, why=evil), evil.encode() * 3)
    report.build(folder.path, RERUN)
    text = (folder.path / "index.html").read_text()
    assert "alert(1)</script>" not in text
    assert "<img" not in text
    data = re.search(r'id="facts">(.*?)</script>', text, re.DOTALL)
    assert data
    assert evil in json.loads(data[1])["cells"][0]["why"]


def test_charts_are_packed_only_where_there_is_something_to_draw(folder: RunFolder) -> None:
    bare = page.render(page_data(read_run(folder.path), folder, RERUN, (), None))
    assert len(bare) < 100_000
    facts(folder, ob1=PASSED)
    full = page.render(page_data(read_run(folder.path), folder, RERUN, (), None))
    packed = re.search(r'id="charts">(.*?)</script>', full, re.DOTALL)
    assert packed
    assert b"plotly.js" in gzip.decompress(b64decode(packed[1]))[:2000]
    assert "http://" not in full.replace("http://www.w3.org", "")[: full.index('id="charts"')]


def test_what_carried_the_data_is_told_by_path(folder: RunFolder) -> None:
    carried = {"on-host": ("ucx/cma", "ucx/posix"), "off-host": ("ucx/tcp",)}
    found = facts(folder, ucx=replace(PASSED, carried=carried), ob1=PASSED)
    assert found["ucx"]["carried"] == "ucx/cma + ucx/posix (on-host), ucx/tcp (off-host)"
    assert "carried" not in found["ob1"]


def test_names_of_matrices_and_hosts_are_no_markup(folder: RunFolder) -> None:
    found = {**page_data(read_run(folder.path), folder, RERUN, (), None), "hosts": ["<b>host</b>"]}
    made = page.render({**found, "matrices": [["<script>alert(1)</script>", "<i>file</i>"]]})
    assert "<script>alert" not in made
    assert "<b>host" not in made
    assert "<i>file" not in made
    assert "&lt;script&gt;alert(1)" in made
