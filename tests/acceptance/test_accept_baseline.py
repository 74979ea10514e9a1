"""Runs held against earlier ones; without xdist, with -n0 and with -n2."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.store import history
from pytest_hetgpu.store.cells import read_cells

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]
Latest = Callable[[], Path]
EXPECTED = "1K float32: latency 12.8 us, expected at most 11.3 (10.2 +10 %) from"
SURE = "10 repeats in 2 launches, spread 0 %, p=0.00067"


@pytest.fixture
def pace(stacks: Path) -> Callable[[str], None]:
    """Says how many times longer large messages take, a word for each launch to come."""

    def say(words: str) -> None:
        (stacks / "openmpi-5" / "paces").write_text(words)

    return say


Pace = Callable[[str], None]


def outcomes(run: Path) -> dict[str, str]:
    return {cell.scenario.rpartition("-")[2]: cell.outcome.kind.value for cell in read_cells(run)}


@pytest.mark.slow
def test_a_slowdown_is_found_and_a_clean_run_is_not_one(
    run_pytest: Run, matrix: Write, latest: Latest, mode: tuple[str, ...], pace: Pace
) -> None:
    matrix(["good", "other"])
    assert run_pytest("--hetgpu-matrix", "demo.yaml", *mode).ret == 0
    before = latest().name
    given = ("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", "latest", *mode)
    clean = run_pytest(*given)
    assert clean.ret == 0
    assert outcomes(latest()) == {"good": "passed", "other": "passed"}
    assert not any("note:" in line for line in clean.outlines)
    pace("1.25")
    slow = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", before, *mode)
    assert slow.ret == 1
    assert outcomes(latest()) == {"good": "slow", "other": "slow"}
    slow.stdout.fnmatch_lines([f"*slow (new): {EXPECTED} baseline {before}; {SURE}"])
    cells = latest() / "scenarios"
    assert len(list(cells.glob("*/launch-2/output.log"))) == 2
    assert not list(cells.glob("*/launch-3"))


def test_what_is_slow_once_only_is_no_failure(
    run_pytest: Run, matrix: Write, latest: Latest, mode: tuple[str, ...], pace: Pace
) -> None:
    matrix(["good"])
    run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    pace("1.25 1")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", "latest", *mode)
    assert done.ret == 0
    assert outcomes(latest()) == {"good": "passed"}
    done.stdout.fnmatch_lines([f"note: seemed slow: {EXPECTED} baseline *; launched again it was not [[]1 cell[]]"])
    assert "seemed slow" in (latest() / "junit.xml").read_text()


@pytest.mark.slow
def test_by_option_variable_and_ini_and_off(
    run_pytest: Run,
    matrix: Write,
    latest: Latest,
    mode: tuple[str, ...],
    pace: Pace,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix(["good"])
    run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    latest().rename(pytester.path / "kept")
    pace("1.25")
    pytester.path.joinpath("below").mkdir()
    pytester.makeini("[pytest]\nhetgpu_matrix = demo.yaml\nhetgpu_baseline = kept\n")
    assert run_pytest(*mode).ret == 1
    assert run_pytest("--hetgpu-baseline", "off", *mode).ret == 0
    pytester.makeini("[pytest]\nhetgpu_matrix = demo.yaml\nhetgpu_baseline = off\n")
    assert run_pytest(*mode).ret == 0
    monkeypatch.setenv("HETGPU_BASELINE", "kept")
    assert run_pytest(*mode).ret == 1


@pytest.mark.slow
def test_any_of_its_names(
    run_pytest: Run, matrix: Write, latest: Latest, pace: Pace, pytester: pytest.Pytester
) -> None:
    matrix(["good"])
    run_pytest("--hetgpu-matrix", "demo.yaml", "--junitxml", "pytests.xml")
    first = latest()
    shutil.copy(first / "junit.xml", pytester.path / "ours.xml")
    shutil.copy(pytester.path / "reports" / "history.sqlite", pytester.path / "nightly.sqlite")
    pace("1.25")
    for name in (first.name, first.name[:-2], "reports/latest", str(first), "nightly.sqlite"):
        shutil.rmtree(pytester.path / "reports" / "latest", ignore_errors=True)
        done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", name)
        assert (done.ret, outcomes(latest())) == (1, {"good": "slow"}), name
        (pytester.path / "reports" / "latest").unlink()
        (pytester.path / "reports" / "latest").symlink_to(first.name)
    for name in ("ours.xml", "pytests.xml"):
        done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", name)
        assert (done.ret, outcomes(latest())) == (1, {"good": "slow"}), name
        told = "which has neither ranks nor memory nor a tool of ours: *"
        done.stdout.fnmatch_lines([f"{name} is a JUnit file, {told}"])
    kept = latest() / "baseline.json"
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", str(kept)).ret == 1


@pytest.mark.slow
def test_the_last_runs_that_share_a_matrix(run_pytest: Run, matrix: Write, latest: Latest, pace: Pace) -> None:
    matrix(["good"])
    for words in ("1", "1.02", "0.99", "1.01", "9"):
        pace(words)
        run_pytest("--hetgpu-matrix", "demo.yaml")
    matrix(["good"], name="other")
    run_pytest("--hetgpu-matrix", "other.yaml")
    pace("1.25")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", "last:9")
    assert done.ret == 1
    done.stdout.fnmatch_lines(["*slow (new): *(10.3 +10 %) from baseline last:9 (5 runs); 10 repeats in 2 launches*"])
    assert len(json.loads((latest() / "baseline.json").read_text())["side"]["runs"]) == 5


def test_a_slow_cell_that_is_run_again_is_held_against_the_same(
    run_pytest: Run, matrix: Write, latest: Latest, pace: Pace
) -> None:
    matrix(["good", "other"])
    run_pytest("--hetgpu-matrix", "demo.yaml")
    pace("1.25")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", "latest")
    again = next(line for line in done.outlines if line.strip().startswith("again:")).split()
    options = again[again.index("--hetgpu-matrix") :]
    assert f"reports/{latest().name}/baseline.json" in options
    done = run_pytest(*options)
    assert (done.ret, list(outcomes(latest()).values())) == (1, ["slow"])


def test_a_stored_run_is_judged_again_with_all_its_launches(
    run_pytest: Run, matrix: Write, latest: Latest, pace: Pace, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix(["good", "other"])
    run_pytest("--hetgpu-matrix", "demo.yaml")
    pace("1.25 1.25 1.25 1")
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", "latest")
    run = latest()
    assert outcomes(run) == {"good": "slow", "other": "passed"}
    (run / "baseline.json").unlink()
    assert main(["report", str(run)]) == 0
    assert "0 verdicts changed" in capsys.readouterr().out
    shutil.rmtree(next(run.glob("scenarios/*good/launch-2")))
    main(["report", str(run)])
    assert "was slow (new), is unknown (new): seems slow: 1K float32" in capsys.readouterr().out


def test_a_known_slowness_is_expected_like_any_failure(run_pytest: Run, matrix: Write, pace: Pace) -> None:
    rule = "expect:\n  - {where: {how: good}, outcome: slow, issue: https://example.org/1}\n"
    matrix(["good"])
    run_pytest("--hetgpu-matrix", "demo.yaml")
    matrix(["good"], more=rule)
    given = ("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", "last:1")
    done = run_pytest(*given)
    assert done.ret == 1
    done.stdout.fnmatch_lines(["*baseline *: the file of the matrix demo is not the same any more"])
    pace("1.25")
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", "last:2").ret == 0


def test_a_further_launch_that_fails_is_told(
    run_pytest: Run, matrix: Write, latest: Latest, pace: Pace, stacks: Path
) -> None:
    matrix(["good"])
    run_pytest("--hetgpu-matrix", "demo.yaml")
    pace("1.25")
    launcher = stacks / "openmpi-5" / "bin" / "mpirun"
    once = "HOME.joinpath('ran').exists() and sys.exit(7) or HOME.joinpath('ran').touch()"
    launcher.write_text(launcher.read_text().replace("    given = variables()", f"    {once}\n    given = variables()"))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", "latest")
    assert done.ret == 1
    done.stdout.fnmatch_lines(["*error (new): it seemed slow, was launched again, and then failed: exit@7"])
    assert outcomes(latest()) == {"good": "error"}


@pytest.mark.parametrize("how", ["tool", "dtype", "ranks"])
def test_the_unlike_is_refused_with_the_reason(
    run_pytest: Run, matrix: Write, latest: Latest, how: str, pytester: pytest.Pytester
) -> None:
    path = matrix(["good"])
    run_pytest("--hetgpu-matrix", "demo.yaml")
    changes = {"tool": "allreduce.py", "dtype": "float32", "ranks": "2"}
    with closing(sqlite3.connect(pytester.path / "reports" / "history.sqlite")) as db, db:
        table = "setting" if how == "tool" else "point"
        db.execute(f"UPDATE {table} SET {how} = 3 WHERE {how} = ?", (changes[how],))
    done = run_pytest("--hetgpu-matrix", path.name, "--hetgpu-baseline", "last:1")
    assert done.ret == 1
    why = f"{how} 3 before and {changes[how]} after" if how != "dtype" else "3 before and float32 after"
    done.stdout.fnmatch_lines([f"*unknown (new): not compared at 8 *, 1K * with baseline *: {why}"])
    assert outcomes(latest()) == {"good": "unknown"}


@pytest.mark.slow
def test_what_the_baseline_lacks_is_noted_and_what_this_run_lacks_is_not_passed(
    run_pytest: Run, matrix: Write, latest: Latest, mode: tuple[str, ...]
) -> None:
    path = matrix(["good"])
    run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    small = latest().name
    matrix(["good", "other"]).write_text(path.read_text().replace("[8, 1K]", "[8, 1K, 4K]"))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", small, *mode)
    assert done.ret == 0
    done.stdout.fnmatch_lines_random(
        [
            f"note: not compared at 4K float32 with baseline {small}: it has no such number [[]1 cell[]]",
            f"note: not compared at 8 *, 1K *, 4K * with baseline {small}: it has no such cell [[]1 cell[]]",
        ]
    )
    large = latest().name
    path.write_text(path.read_text().replace("[8, 1K, 4K]", "[8, 1K]"))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", large, "-k", "good", *mode)
    assert done.ret == 1
    why = f"not compared at 4K float32 with baseline {large}: this run does not measure it"
    done.stdout.fnmatch_lines([f"*unknown (new): {why}"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("nothing", "ERROR: no run 'nothing': *"),
        ("last:3", "ERROR: *history.sqlite*"),
        ("demo.yaml", "ERROR: demo.yaml: not the JUnit file of a run *"),
        ("broken.sqlite", "ERROR: *broken.sqlite*"),
        ("damaged.json", "ERROR: damaged.json: not a baseline that a run has kept *"),
    ],
)
def test_a_baseline_that_is_none_is_a_usage_error_before_anything_starts(
    run_pytest: Run, matrix: Write, given: str, told: str, pytester: pytest.Pytester
) -> None:
    matrix(["good"])
    files = {"broken.sqlite": b"SQLite format 3\0" + b"x" * 5000, "damaged.json": b'{"schema": 1'}
    for name, data in files.items():
        pytester.path.joinpath(name).write_bytes(data)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", given)
    assert done.ret == 4
    done.stderr.fnmatch_lines([told])
    assert not pytester.path.joinpath("reports").exists()
    assert {name: pytester.path.joinpath(name).read_bytes() for name in files} == files


def test_a_baseline_of_another_matrix_is_a_usage_error(
    run_pytest: Run, matrix: Write, latest: Latest, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    matrix(["good"], name="other")
    run_pytest("--hetgpu-matrix", "other.yaml", *mode)
    run = latest().name
    matrix(["good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", run, *mode)
    assert done.ret == 4
    done.stderr.fnmatch_lines([f"ERROR: baseline {run}: it is of another matrix (other) than this run (demo)"])
    assert latest().name == run
    assert len(history.list_runs(pytester.path / "reports" / "history.sqlite")) == 1


def test_a_damaged_history_beside_a_good_baseline_is_kept_aside(
    run_pytest: Run, matrix: Write, latest: Latest, pytester: pytest.Pytester
) -> None:
    matrix(["good"])
    run_pytest("--hetgpu-matrix", "demo.yaml")
    file = pytester.path / "reports" / "history.sqlite"
    data = b"notes\n" * 500
    file.write_bytes(data)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", "latest")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["history: *history.sqlite was damaged *; it is kept as history.sqlite.damaged-*"])
    (aside,) = file.parent.glob("history.sqlite.damaged-*")
    assert aside.read_bytes() == data
    assert [listed.id for listed in history.list_runs(file)] == [latest().name]


def test_repeats_are_in_the_journal_and_the_history(
    run_pytest: Run, matrix: Write, latest: Latest, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    path = matrix(["good"])
    path.write_text(path.read_text().replace("sizes: [8, 1K]", "sizes: [8, 1K], repeats: 3"))
    run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    (cell,) = read_cells(latest())
    (remembered,) = history.load_run(pytester.path / "reports" / "history.sqlite", latest().name).cells
    for measured in (cell.outcome.measurements, remembered.measurements):
        assert {len(one.samples) for one in measured} == {3}


def test_a_plan_asks_for_no_baseline(run_pytest: Run, matrix: Write) -> None:
    matrix(["good"])
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", "nothing", "--hetgpu-plan").ret == 0
    done: Any = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-baseline", "nothing", "--collect-only")
    assert done.ret == 0
