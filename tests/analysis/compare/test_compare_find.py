"""Runs by the user's names for them, errors for missing ones; and the command's exit codes."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.compare.find import RunLocations, find, sides
from pytest_hetgpu.cli.compare import run_places
from pytest_hetgpu.cli.main import main
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.reporting import report
from pytest_hetgpu.store import history
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.run_summary import summarise
from tests.analysis.compare.compare_samples import bad, good, run
from tests.reporting.report_samples import CRASHED, KEY, PASSED, run_cell


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunLocations:
    monkeypatch.chdir(tmp_path)
    for name in ("HETGPU_HISTORY", "HETGPU_REPORTS"):
        monkeypatch.delenv(name, raising=False)
    return run_places(None, None, {})


def make(outcome: Outcome, matrix: str = "aws") -> Path:
    """Make a run's folder below `reports`, with its reports, and its row in the history."""
    folder = RunFolder.create(Path("reports"))
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile(matrix, f"{matrix}.yaml", "0" * 64)], ["pytest"])
        run_cell(folder, journal, "mixed-ucx-send", outcome)
    report.build(folder.path, "pytest --hetgpu-cell {label}")
    history.put(folder.history, summarise(read_run(folder.path), folder.path))
    return folder.path


def remember(here: RunLocations, *names: str) -> None:
    for place, name in enumerate(names):
        history.put(here.history, run(good("a"), name=name, started=100.0 + place))


def ids(name: str, here: RunLocations) -> list[str]:
    return [one.id for one in find(name, here).runs]


def test_folders_files_and_the_newest(here: RunLocations) -> None:
    old, new = make(PASSED), make(CRASHED)
    assert ids(str(old), here) == ids(str(old.resolve()), here) == ids(old.name, here) == [old.name]
    assert ids("latest", here) == ids("reports/latest", here) == [new.name]
    shutil.copy(old / "junit.xml", "base.xml")
    found = find("base.xml", here)
    assert [cell.kind.value for cell in found.runs[0].cells] == ["passed"]
    assert found.note.startswith("base.xml is a JUnit file, which has neither ranks")
    (old / "journal").rename(old / "gone")
    assert find(str(old), here).name == f"{old}/junit.xml"


def test_a_run_that_was_taken_away_is_remembered(here: RunLocations) -> None:
    old, new = make(PASSED), make(CRASHED)
    shutil.rmtree("reports/latest", ignore_errors=True)
    shutil.move(str(old), "elsewhere")
    assert ids(old.name, here) == ids("elsewhere", here) == [old.name]
    shutil.rmtree(new)
    Path("reports/latest").unlink()
    assert ids("latest", here) == [new.name]


def test_where_links_cannot_be_made(here: RunLocations) -> None:
    old = make(PASSED)
    Path("reports/latest").unlink()
    Path("reports/latest.txt").write_text(f"{old.name}\n")
    assert ids("latest", here) == [old.name]


def test_ids_may_be_cut_where_they_are_unambiguous(here: RunLocations) -> None:
    remember(here, "20261120-x", "20261121-x", "20261121-xy")
    assert ids("20261120", here) == ["20261120-x"]
    assert ids("20261121-x", here) == ["20261121-x"], "whole, though another begins with it"
    with pytest.raises(UsageError, match=r"^'2026' may be 3 runs of reports/history.sqlite: 20261121-xy, 20261121-x, "):
        find("2026", here)


def test_the_last_runs_are_those_before(here: RunLocations) -> None:
    remember(here, "a", "b", "c", "d")
    history.put(here.history, run(good("a", matrix="other"), name="e", started=101.5))
    assert ids("last:2", here) == ids("last 2", here) == ids("last: 2", here) == ["d", "c"]
    before, after = sides("last:9", "c", here)
    assert [one.id for one in before.runs] == ["b", "a"], "neither itself, nor later, nor of another matrix"
    assert (before.note, after.name) == ("last:9: there are only 2", "c")
    before, after = sides("last:2", "last:2", here)
    assert [one.id for one in (*before.runs, *after.runs)] == ["b", "a", "d", "c"]
    with pytest.raises(UsageError, match=r"^the history reports/history.sqlite holds no run before a$"):
        sides("last:3", "a", here)
    with pytest.raises(UsageError, match="'last:0' are no runs at all"):
        find("last:0", here)


def test_what_is_not_there(here: RunLocations) -> None:
    with pytest.raises(UsageError, match=r"^no run 'x': no such folder or file, and there is no history reports/hist"):
        find("x", here)
    remember(here, "20261120-x")
    told = r"neither .* in reports/history.sqlite \(known: 20261120-x; did you mean '20261120-x'\?\)$"
    with pytest.raises(UsageError, match=rf"^no run '20261120-y': {told}"):
        find("20261120-y", here)
    for name in ("", "x" * 5000, "a\0b", "\udcff"):
        with pytest.raises(UsageError):
            find(name, here)


def test_folders_and_files_that_are_no_runs(here: RunLocations) -> None:
    remember(here, "a")
    Path("empty/journal").mkdir(parents=True)
    Path("folder").mkdir()
    Path("notes").write_text("notes")
    Path("other.xml").write_text("<testsuite><testcase name='x'/></testsuite>")
    Path("broken.xml").write_text("<testsuite>")
    file = "reports/history.sqlite"
    for name, why in {
        "empty": "empty: its journal holds no cell",
        "folder": "folder: not the folder of a run (it holds neither a folder `journal` nor junit.xml)",
        "notes": "notes: not the JUnit file of a run (syntax error: line 1, column 0)",
        "other.xml": "other.xml: holds no cell of a matrix",
        "broken.xml": "broken.xml: not the JUnit file of a run (no element found: line 1, column 11)",
        file: f"{file} is a history: give --history {file} and name a run in it",
        "postgresql://ci:secret77@db/runs": "a URL is a history: give it with --history, and name a run in it",
    }.items():
        with pytest.raises(UsageError) as caught:
            find(name, here)
        assert str(caught.value) == why


def test_where_runs_are_looked_for() -> None:
    def told(reports: str | None = None, history_: str | None = None, **environ: str) -> tuple[str, str]:
        found = run_places(Path(reports) if reports else None, history_, environ)
        return str(found.reports), str(found.history)

    assert told() == told(HETGPU_HISTORY="off") == ("reports", "reports/history.sqlite")
    assert told(HETGPU_REPORTS="r") == told("r", HETGPU_REPORTS="x") == ("r", "r/history.sqlite")
    assert told(None, "h", HETGPU_HISTORY="x") == told(HETGPU_HISTORY="h") == ("reports", "h")
    url = "postgresql://ci@db/runs"
    assert told(None, url) == told(HETGPU_HISTORY="postgresql://ci:secret77@db/runs") == ("reports", url)


def test_exit_codes(here: RunLocations, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = make(PASSED), make(CRASHED)
    assert main(["compare", str(old), "latest"]) == 1
    assert f"mixed-ucx-send: passed -> crash {KEY} (new)" in capsys.readouterr().out
    assert main(["compare", "latest", str(old)]) == 0
    capsys.readouterr()
    assert main(["compare", "last:5", new.name, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["worse"] is True


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "much", ""])
def test_a_tolerance_that_cannot_be_meant(here: RunLocations, capsys: pytest.CaptureFixture[str], value: str) -> None:
    assert main(["compare", "a", "b", f"--tolerance={value}"]) == 4
    assert capsys.readouterr().err == f"ERROR: --tolerance: {value!r} is not a number of percent\n"


def test_usage_errors(here: RunLocations, capsys: pytest.CaptureFixture[str]) -> None:
    old = make(PASSED)
    for arguments in (["a"], ["a", "b"], [str(old), str(old), "--history", "x", "--what"]):
        assert main(["compare", *arguments]) == 4
    remember(here, "b1")
    history.put(here.history, replace(run(bad("z")), id="b2"))
    capsys.readouterr()
    assert main(["compare", "b1", "b2"]) == 4
    assert capsys.readouterr().err == "ERROR: nothing in common: b1 and b2 have no cell of aws in common\n"
    assert main(["compare", str(old), str(old), "--tolerance", "5%"]) == 0
