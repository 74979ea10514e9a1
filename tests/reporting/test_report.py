"""The reports of a run, built from its files."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.reporting import report
from pytest_hetgpu.reporting.table import table
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CHANGED, CRASHED, FIXED, KEY, KNOWN, PASSED, RERUN, job, run_cell, scenario

SECRET = "ghp_" + "s3cr3t12" * 5


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that was interrupted after every event had happened once, with a secret in every possible place."""
    folder = RunFolder.create(tmp_path / "reports")
    log = f"\x1b[31m{SECRET}\x1b[0m \xff ]]>\n".encode("latin-1")
    with closing(Journal(folder.path, "gw0")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest", f"--token={SECRET}"])
        for label, outcome in {
            "mixed-ucx-send": PASSED,
            "mixed-ucx-allreduce": replace(CRASHED, why=f"refused {SECRET}"),
            "mixed-ob1-send": replace(KNOWN, stack=SECRET),
            "mixed-ob1-allreduce": CHANGED,
            "cpu-ucx-send": FIXED,
        }.items():
            run_cell(folder, journal, label, outcome, log)
    with closing(Journal(folder.path, "gw1")) as journal:
        journal.skipped(scenario("mixed-nccl-send"), f"refused {SECRET}")
        journal.planned(job("cpu-ucx-allreduce"))
        journal.started(job("cpu-ucx-allreduce"))
        journal.planned(job("cpu-ob1-send"))
    with journal.path.open("ab") as file:
        file.write(b'{"schema": 1, "event": "sta')
    return folder


def states(folder: Path) -> dict[str | None, str]:
    found = ET.parse(folder / "junit.xml").getroot().iter("testcase")
    bad = ("failure", "error", "skipped")
    return {case.get("name"): next((child.tag for child in case if child.tag in bad), "") for case in found}


def test_reports_tell_all_of_a_run_that_was_cut_short(run: RunFolder) -> None:
    record = report.build(run.path, RERUN)
    assert states(run.path) == {
        "mixed-ucx-send": "",
        "mixed-ucx-allreduce": "failure",
        "mixed-ob1-send": "skipped",
        "mixed-ob1-allreduce": "failure",
        "cpu-ucx-send": "failure",
        "mixed-nccl-send": "skipped",
        "cpu-ucx-allreduce": "error",
        "cpu-ob1-send": "skipped",
    }
    summary = (run.path / "summary.md").read_text()
    assert "**Of 8 cells, 1 works, 2 are new failures," in summary
    assert "cut short: started at" in summary
    assert "never started: the run ended before its turn: cpu-ob1-send" in summary
    assert "could not be read: 1 damaged." in summary
    assert f"`{KEY}`" in summary
    assert "[output.log](scenarios/mixed-ucx-allreduce/output.log)" in summary
    assert "`pytest --hetgpu-cell mixed-ucx-allreduce`" in summary
    lines = ["".join(text for text, _ in row).split() for row in table(record.cells)]
    assert lines[:3] == [["ucx", "ob1", "nccl"], ["mixed", ".N", "kC", "-"], ["cpu", "FN", "-"]]


def test_no_secret_is_in_any_report(run: RunFolder) -> None:
    report.build(run.path, RERUN)
    written = [path for path in run.path.rglob("*") if path.is_file() and path.name != "output.log"]
    assert {path.name for path in written} == {
        "junit.xml",
        "summary.md",
        "index.html",
        "boundary.json",
        "job.json",
        "gw0.jsonl",
        "gw1.jsonl",
        "SIGSEGV-libuct-rocm.so-uct-rocm-copy-ep-put-short.md",
    }
    assert [path for path in written if SECRET in path.read_text()] == []
    assert SECRET in run.log("mixed-ucx-send").read_text("latin-1")


def test_reports_can_be_built_again(run: RunFolder) -> None:
    report.build(run.path, RERUN)
    first = {name: (run.path / name).read_bytes() for name in ("junit.xml", "summary.md")}
    report.build(run.path, lambda _, label: f"pytest --hetgpu-cell {label}")
    assert {name: (run.path / name).read_bytes() for name in first} == first


def test_a_run_moved_elsewhere_finds_its_logs(run: RunFolder, tmp_path: Path) -> None:
    moved = run.path.rename(tmp_path / "artefact")
    report.build(moved, RERUN)
    text = (moved / "junit.xml").read_text()
    assert f"[[ATTACHMENT|{moved}/scenarios/mixed-ucx-send/output.log]]" in text
    assert str(run.path) not in text


def test_a_hostile_journal_is_still_reported(run: RunFolder) -> None:
    with closing(Journal(run.path, "gw2")) as journal:
        for number, label in enumerate(("../../x", "\ud800\x00\x1b[31m", "]]>", "x" * 5000)):
            made = replace(job("a-b-c"), scenario=str(number), label=label, axes={label: label, "placement": label})
            journal.planned(made)
            journal.judged(made, CRASHED)
    report.build(run.path, RERUN)
    assert len(states(run.path)) == 12
    assert "Of 12 cells" in (run.path / "summary.md").read_text()


def test_no_journal_no_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the folder of a run"):
        report.build(tmp_path, RERUN)
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_cannot_be_made_leaves_the_old_one(run: RunFolder) -> None:
    report.build(run.path, RERUN)
    before = (run.path / "junit.xml").read_bytes()

    def broken(matrix: str, label: str) -> str:
        raise RuntimeError(label)

    with pytest.raises(RuntimeError):
        report.build(run.path, broken)
    assert (run.path / "junit.xml").read_bytes() == before
    assert not list(run.path.glob(".*"))


def test_writing_a_journal_imports_nothing_heavy() -> None:
    names = ("store.journal", "store.folder", "store.properties", "reporting.report", "reporting.table")
    modules = ", ".join(f"pytest_hetgpu.{name}" for name in names)
    code = f"import sys, {modules}; print({{'pytest', 'junitparser', 'pydantic', 'yaml'}} & set(sys.modules))"
    root = Path(__file__).parents[2]
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert found.stdout == "set()\n"


def test_a_thousand_cells_with_their_files(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    before = time.perf_counter()
    with closing(Journal(folder.path, "main")) as journal:
        for i in range(1000):
            run_cell(folder, journal, f"p{i % 10}-t{i // 10 % 10}-w{i // 100}", PASSED if i % 10 else CRASHED)
    ran = time.perf_counter()
    report.build(folder.path, RERUN)
    took = time.perf_counter() - ran
    sys.stdout.write(f"recorded in {(ran - before) * 1000:.0f} us a cell, 1,000 reported in {took:.2f} s\n")
    assert sum(state == "failure" for state in states(folder.path).values()) == 100
    assert sum(1 for path in folder.path.rglob("*") if path.is_file()) == 2 * 1000 + len(
        ("journal", "junit", "summary", "index", "boundary", "issue")
    )


def test_all_that_reports_need_is_loaded_ahead(tmp_path: Path) -> None:
    """Building the reports of a run imports no further module of ours, but for the texts of issues."""
    folder = RunFolder.create(tmp_path)
    with closing(Journal(folder.path, "main")) as journal:
        run_cell(folder, journal, "p-t-w", PASSED)
    program = (
        "import sys, pathlib\n"
        "from pytest_hetgpu.reporting import report\n"
        "report.get_ready(lambda: None)\n"
        "ahead = set(sys.modules)\n"
        "report.build(pathlib.Path(sys.argv[1]), '')\n"
        "print(*sorted(name for name in set(sys.modules) - ahead if name.startswith('pytest_hetgpu')))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder.path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_part_that_fails_in_any_way_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.create(tmp_path)
    with closing(Journal(folder.path, "main")) as journal:
        run_cell(folder, journal, "p-t-w", CRASHED)

    def broken(*_: object) -> dict[str, str]:
        raise ValueError("a runtime's lines")

    monkeypatch.setattr("pytest_hetgpu.reporting.upstream.write_issues.write_issues", broken)
    trouble: list[str] = []
    report.build(folder.path, RERUN, trouble)
    assert (folder.path / "index.html").is_file()
    assert [line for line in trouble if "issues (ValueError: a runtime's lines)" in line]
