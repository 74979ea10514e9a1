"""Damaged runs: their reports are built, and list the missing parts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.reporting import report
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CRASHED, KEY, PASSED, RERUN, job, run_cell

SEND, REDUCE = "mixed-ucx-send", "mixed-ucx-allreduce"
REPORTS = ("junit.xml", "summary.md", "index.html")


def made(reports: Path) -> RunFolder:
    folder = RunFolder.create(reports)
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"])
        run_cell(folder, journal, SEND, PASSED)
        run_cell(folder, journal, REDUCE, CRASHED, b"a line\n" * 70)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return made(tmp_path / "reports")


def states(folder: RunFolder) -> dict[str | None, str]:
    found = ET.parse(folder.path / "junit.xml").getroot().iter("testcase")
    bad = ("failure", "error", "skipped")
    return {case.get("name"): next((child.tag for child in case if child.tag in bad), "ok") for case in found}


def facts(folder: RunFolder) -> dict[str, Any]:
    page = (folder.path / "index.html").read_text("utf-8")
    return dict(json.loads(page.partition('id="facts">')[2].partition("</script>")[0]))


def lines(folder: RunFolder, change: Any) -> None:
    """Change the journal line by line."""
    path = folder.path / "journal" / "main.jsonl"
    path.write_text("".join(f"{json.dumps(change(json.loads(line)))}\n" for line in path.read_text().splitlines()))


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_journal_cut_in_the_middle_of_a_line(run: RunFolder, share: float) -> None:
    path = run.path / "journal" / "main.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    report.build(run.path, RERUN)
    assert "1 damaged" in (run.path / "summary.md").read_text()
    assert facts(run)["unread"] == {"damaged": 1}
    assert "could not be read: 1 lines damaged" in (run.path / "index.html").read_text()
    assert "ok" not in {state for name, state in states(run).items() if name == REDUCE}
    assert main(["report", str(run.path)]) == 0


def test_a_run_of_an_older_version(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """Remove everything that later versions added; the rest is read, and judged by this version."""
    added = {"options", "folder", "id", "position", "stacks", "wire", "traffic", "survivors", "lost", "interrupted"}

    def older(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: older(item) for name, item in value.items() if name not in added}
        return [older(item) for item in value] if isinstance(value, list) else value

    lines(run, older)
    for label in (SEND, REDUCE):
        kept = json.loads(run.job(label).read_text())
        run.job(label).write_text(json.dumps({**kept, "result": older(kept["result"])}))
    assert read_run(run.path).unread == {}
    assert main(["report", str(run.path)]) == 0
    said = capsys.readouterr().out
    # What a made-up log holds is no crash: this version says so, of a run that it did not make.
    assert f"{REDUCE}: was crash (new), is" in said
    assert states(run).keys() == {SEND, REDUCE}


def test_a_run_of_a_newer_version(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """Its lines are counted, never guessed; a cell whose job cannot be read keeps its verdict."""
    path = run.path / "journal" / "main.jsonl"
    with path.open("a") as file:
        file.write(json.dumps({"schema": 9, "event": "judged", "matrix": "aws", "scenario": SEND}) + "\n")
        file.write(json.dumps({"schema": 1, "event": "dreamt", "epoch": 1.0, "order": 0}) + "\n")
    kept = json.loads(run.job(REDUCE).read_text())
    run.job(REDUCE).write_text(json.dumps({**kept, "schema": 9}))
    assert main(["report", str(run.path)]) == 0
    said = capsys.readouterr().out
    assert f"{REDUCE}: stays as it was judged: " in said
    assert "written by a newer version (schema 9, known: 1)" in said
    assert "2 newer" in (run.path / "summary.md").read_text()
    assert facts(run)["unread"] == {"newer": 2}
    assert states(run)[REDUCE] == "failure"


def test_logs_that_were_deleted(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.log(REDUCE).unlink()
    assert main(["report", str(run.path)]) == 0
    said = capsys.readouterr().out
    assert f"1 logs are gone, their cells stay as they were judged: {REDUCE}" in said
    assert f"{REDUCE}: was" not in said
    summary = (run.path / "summary.md").read_text()
    assert (
        f"Logs that are not there any more, so that nothing is quoted from them and no verdict changes: {REDUCE}."
        in (summary)
    )
    assert f"`{KEY}`" in summary
    junit = (run.path / "junit.xml").read_text()
    assert "(the log is not there any more)" in junit
    assert f"{REDUCE}/output.log" not in junit
    (cell,) = (one for one in facts(run)["cells"] if one["id"] == REDUCE)
    assert (cell["lost"], cell.get("log"), cell["key"]) == (f"scenarios/{REDUCE}/output.log", None, KEY)
    assert "The log of 1 cell is not there any more" in (run.path / "index.html").read_text()
    assert main(["bundle", str(run.path), REDUCE, "-o", str(run.path / "b.tar.gz")]) == 0


def test_all_but_the_journal_is_gone(run: RunFolder) -> None:
    shutil.rmtree(run.path / "scenarios")
    report.build(run.path, RERUN)
    assert states(run) == {SEND: "ok", REDUCE: "failure"}
    assert facts(run)["issues"] == {KEY: "issues/SIGSEGV-libuct-rocm.so-uct-rocm-copy-ep-put-short.md"}


@pytest.mark.parametrize(
    "name", ["<img src=x onerror=alert(1)>", "../../../x", "a b'\"`$(touch x)|;&", "\u202egnp.exe", "x" * 900]
)
def test_hostile_names_stay_names(run: RunFolder, name: str, tmp_path: Path) -> None:
    with closing(Journal(run.path, "other")) as journal:
        one = replace(
            job("a-b-c"), scenario=name, label=name, axes={"placement": name, "transport": name, "workload": name}
        )
        journal.planned(one)
        run.prepare(name).write_bytes(b"<script>alert(1)</script>\x1b]0;owned\x07\x1b[31mred\n")
        run.write_job(one)
        journal.started(one)
        journal.judged(one, CRASHED)
    report.build(run.path, RERUN)
    page = (run.path / "index.html").read_text("utf-8")
    head = page.partition('id="charts">')[0]
    assert "<img" not in head
    assert "<script>alert" not in head
    assert all("\x1b" not in (run.path / one).read_text("utf-8") for one in REPORTS)
    inside = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")}
    assert inside == {"reports"}
    assert main(["bundle", str(run.path), name, "-o", str(tmp_path / "b.tar.gz")]) == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that holds the page twice."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place))
    if (
        os.geteuid()
        or shutil.which("mount") is None
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("needs to mount a file system")
    yield place
    subprocess.run(("umount", "-l", place), check=True)


def test_a_disk_that_fills_while_reporting(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(small_disk / "reports")
    report.build(run.path, RERUN)
    before = {name: (run.path / name).read_bytes() for name in REPORTS}
    with closing(Journal(run.path, "other")) as journal:
        run_cell(run, journal, "cpu-ucx-send", CRASHED)
    filler = small_disk / "filler"
    subprocess.run(("dd", "if=/dev/zero", f"of={filler}", "bs=4096"), capture_output=True, check=False)
    # Nothing fits: every report is the whole one of before, and it is said once.
    trouble: list[str] = []
    record = report.build(run.path, RERUN, trouble)
    assert len(record.cells) == 3
    assert {name: (run.path / name).read_bytes() for name in REPORTS} == before
    (said,) = trouble
    assert said.startswith("reports: not written: junit.xml (No space left on device), summary.md (No space")
    assert said.endswith(f"`hetgpu report {run.path}` builds the reports again")
    assert main(["report", str(run.path)]) == 4
    assert "No space left on device" in capsys.readouterr().err
    # What CI needs fits: it is there, with the cell that came last.
    with filler.open("rb+") as file:
        file.truncate(filler.stat().st_size - 60_000)
    trouble.clear()
    report.build(run.path, RERUN, trouble)
    assert states(run)["cpu-ucx-send"] == "failure"
    assert (run.path / "index.html").read_bytes() == before["index.html"]
    assert "index.html (No space left on device)" in trouble[0]
    assert "junit.xml" not in trouble[0]
    assert not list(run.path.glob(".*"))
    filler.unlink()
    assert main(["report", str(run.path)]) == 0
    assert len(facts(run)["cells"]) == 3
