"""Every run goes into the history; without xdist, with -n0 and with -n2."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.store import history
from pytest_hetgpu.store.history_schema import MIGRATIONS

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]
Latest = Callable[[], Path]
CRASH = "SIGSEGV@libuct.so!uct_tcp_ep_am_short"


def ids(file: Path) -> list[str]:
    return [listed.id for listed in history.list_runs(file)]


def test_every_run_is_remembered_beside_the_others(
    run_pytest: Run, matrix: Write, latest: Latest, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    matrix(["good", "crash"])
    assert run_pytest("--hetgpu-matrix", "demo.yaml", *mode).ret == 1
    file = pytester.path / "reports" / "history.sqlite"
    first = latest().name
    assert ids(file) == [first]
    found = history.load_run(file, first)
    assert [one.name for one in found.matrices] == ["demo"]
    assert found.folder == str(latest())
    good, crash = found.cells
    assert (good.scenario, good.verdict, good.tool) == ("two-ob1-tcp-allreduce-good", Verdict.OK, "allreduce.py")
    assert (good.transports, good.facts["openmpi"], good.memory) == (("ob1/tcp",), "5.0.11", "host")
    assert [row.name for row in good.measurements if row.metric == "busbw"] == [
        "busbw[8,float32]",
        "busbw[1024,float32]",
    ]
    assert (crash.verdict, crash.signature) == (Verdict.NEW, CRASH)
    run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    assert ids(file) == [latest().name, first]


def test_another_file_by_option_variable_and_ini(
    run_pytest: Run, matrix: Write, mode: tuple[str, ...], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix(["good"])
    pytester.makeini("[pytest]\nhetgpu_matrix = demo.yaml\nhetgpu_history = kept/by-ini.sqlite\n")
    assert run_pytest(*mode).ret == 0
    monkeypatch.setenv("HETGPU_HISTORY", "by-variable.sqlite")
    assert run_pytest(*mode).ret == 0
    assert run_pytest("--hetgpu-history", "by-option.sqlite", *mode).ret == 0
    for file in ("kept/by-ini.sqlite", "by-variable.sqlite", "by-option.sqlite"):
        assert len(ids(pytester.path / file)) == 1
    assert not (pytester.path / "reports" / "history.sqlite").exists()


@pytest.mark.parametrize("how", ["option", "variable", "ini"])
def test_switched_off(
    run_pytest: Run,
    matrix: Write,
    how: str,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    mode: tuple[str, ...],
) -> None:
    matrix(["good"])
    if how == "variable":
        monkeypatch.setenv("HETGPU_HISTORY", "off")
    elif how == "ini":
        pytester.makeini("[pytest]\nhetgpu_history = off\n")
    option = ("--hetgpu-history=off",) if how == "option" else ()
    assert run_pytest("--hetgpu-matrix", "demo.yaml", *option, *mode).ret == 0
    assert not list(pytester.path.rglob("*.sqlite"))
    assert not (pytester.path / "off").exists()


def test_a_plan_is_no_run(run_pytest: Run, matrix: Write, pytester: pytest.Pytester) -> None:
    matrix(["good"])
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-plan", "--hetgpu-history", "h.sqlite").ret == 0
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--collect-only", "--hetgpu-history", "h.sqlite").ret == 0
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "-k", "nothing", "--hetgpu-history", "h.sqlite").ret == 5
    assert not (pytester.path / "h.sqlite").exists()


def test_a_damaged_history_is_kept_and_said(
    run_pytest: Run, matrix: Write, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    matrix(["good"])
    file = pytester.path / "h.sqlite"
    file.write_text("notes\n" * 100)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-history", "h.sqlite", *mode)
    assert done.ret == 0
    kept = "it is kept as h.sqlite.damaged-*, and a new history begun"
    done.stdout.fnmatch_lines([f"history: */h.sqlite was damaged (file is not a database); {kept}", "reports: *"])
    [aside] = pytester.path.glob("h.sqlite.damaged-*")
    assert aside.read_text() == "notes\n" * 100
    assert len(ids(file)) == 1


def test_a_newer_history_is_left_alone_and_the_run_is_not_lost(
    run_pytest: Run, matrix: Write, latest: Latest, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    matrix(["good"])
    file = pytester.path / "h.sqlite"
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA application_id = 0x68677075")
        db.execute("PRAGMA user_version = 7")
    data = file.read_bytes()
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-history", "h.sqlite", *mode)
    assert done.ret == 0
    told = f"*/h.sqlite was written by a newer version (schema 7, known: {len(MIGRATIONS)}); it is left alone"
    later = "hetgpu report */reports/* --history FILE puts it in later"
    done.stdout.fnmatch_lines([f"history: this run is not in it ({told}); {later}"])
    assert file.read_bytes() == data
    assert (latest() / "junit.xml").exists()


@pytest.mark.parametrize("where", ["a-folder", "a-file/below"])
def test_a_history_that_cannot_be_there(run_pytest: Run, matrix: Write, where: str, pytester: pytest.Pytester) -> None:
    matrix(["good"])
    (pytester.path / "a-folder").mkdir()
    (pytester.path / "a-file").touch()
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-history", where)
    assert done.ret == 0
    done.stdout.fnmatch_lines([f"history: this run is not in it (*{where}*); hetgpu report * puts it in later"])


def test_two_sessions_at_once_both_land(matrix: Write, pytester: pytest.Pytester, mode: tuple[str, ...]) -> None:
    matrix(["good", "crash"])
    command = (sys.executable, "-m", "pytest", "--hetgpu-matrix", "demo.yaml", *mode)
    sessions = [subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [session.communicate(timeout=60)[0] for session in sessions]
    assert [session.returncode for session in sessions] == [1, 1], said
    assert not any("history:" in text for text in said)
    folders = [path.name for path in (pytester.path / "reports").iterdir() if path.is_dir() and not path.is_symlink()]
    assert sorted(ids(pytester.path / "reports" / "history.sqlite")) == sorted(folders)


def test_a_run_is_put_in_again_when_it_is_judged_again(
    run_pytest: Run, matrix: Write, latest: Latest, pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix(["good", "crash"])
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-history=off")
    file = pytester.path / "mine.sqlite"
    for _ in range(2):
        assert main(["report", str(latest()), "--history", str(file)]) == 0
        assert f"put into {file}" in capsys.readouterr().out
        assert [cell.verdict for cell in history.load_run(file, latest().name).cells] == [Verdict.OK, Verdict.NEW]
    assert ids(file) == [latest().name]
    (pytester.path / "folder").mkdir()
    assert main(["report", str(latest()), "--history", str(pytester.path / "folder")]) == 4
    assert capsys.readouterr().err == f"ERROR: {pytester.path / 'folder'} is not a file\n"


def test_a_run_names_since_when_a_cell_fails(
    run_pytest: Run, matrix: Write, latest: Latest, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    path = matrix(["good", "crash"])
    assert run_pytest("--hetgpu-matrix", "demo.yaml", *mode).ret == 1
    assert not (latest() / "past.json").exists(), "nothing was before the first run"
    run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    first = history.list_runs(pytester.path / "reports" / "history.sqlite")[1]
    path.write_text(path.read_text().replace("BEHAVE: good", "BEHAVE: crash"))
    assert run_pytest("--hetgpu-matrix", "demo.yaml", *mode).ret == 1
    for place in ("as the session left it", "as built again without the history"):
        summary = (latest() / "summary.md").read_text()
        assert "- since this run, was ok for 2 runs; matrix demo " in summary, place
        assert "- the same in all 3 runs" in summary, place
        values = {
            case.attrib["name"].rpartition("-")[2]: {
                one.attrib["name"]: one.attrib["value"] for one in case.iter("property")
            }
            for case in ElementTree.parse(latest() / "junit.xml").iter("testcase")
        }
        began = datetime.fromtimestamp(first.started, timezone.utc)
        assert values["crash"]["since"] == f"{began:%Y-%m-%dT%H:%M:%SZ}", place
        assert values["good"]["since"] > values["crash"]["since"], place
        assert "since this run, was ok for 2 runs" in (latest() / "index.html").read_text(), place
        (pytester.path / "reports" / "history.sqlite").unlink(missing_ok=True)
        command = (sys.executable, "-m", "pytest_hetgpu.cli", "report", str(latest()))
        subprocess.run(command, check=True, capture_output=True)
