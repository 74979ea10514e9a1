"""A run that was cut off is taken up again: without xdist, with -n0 and with -n2."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from junitparser import JUnitXml

from pytest_hetgpu.store import history
from tests.acceptance.test_accept_stop import as_in_a_terminal, wait_for_word

Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]
Latest = Callable[[], Path]

CELL = "two-ob1-tcp-allreduce-"
HOWS = ["good", "crash", "hang", "good2"]
KNOWN = "expect:\n  - {where: {how: crash}, outcome: crash, issue: https://example.org/bug/1}\n"


def cases(path: Path) -> dict[str, list[str]]:
    """What became of each cell by a JUnit file; a name that is there twice is a mistake."""
    found = [
        (case.name, [type(e).__name__.lower() for e in case.result]) for s in JUnitXml.fromfile(str(path)) for case in s
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def events(run: Path, name: str) -> Counter[str]:
    """How often each cell has an event of that name."""
    lines = [line for path in run.glob("journal/*.jsonl") for line in path.read_bytes().splitlines()]
    found = []
    for line in lines:
        with suppress(ValueError):
            event = json.loads(line)
            found += [event["scenario"].removeprefix(CELL)] if event["event"] == name else []
    return Counter(found)


@pytest.fixture
def nothing_left(stacks: Path) -> Iterator[None]:
    """Ends what runs that were killed left."""
    yield
    for process in psutil.process_iter(["cmdline"]):
        if str(stacks) in " ".join(process.info["cmdline"] or ()):
            with suppress(psutil.Error):
                process.kill()


Killed = Callable[..., Path]


@pytest.fixture
def killed(
    matrix: Write, latest: Latest, pytester: pytest.Pytester, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> Killed:
    """`killed(*mode)`: a run over all cells whose pytest is killed while one hangs; the hang is over afterwards."""

    def kill(*arguments: str, more: str = "") -> Path:
        matrix(HOWS, more)
        fifo = pytester.path / "fifo"
        os.mkfifo(fifo)
        command = [sys.executable, "-m", "pytest", "--hetgpu-matrix", "demo.yaml", *arguments]
        with subprocess.Popen(
            command,
            cwd=pytester.path,
            env={**os.environ, "STANDIN_FIFO": str(fifo)},
            stdout=subprocess.DEVNULL,
            preexec_fn=as_in_a_terminal,  # noqa: PLW1509 - no other thread of this process takes a lock
        ) as run:
            wait_for_word(fifo)
            run.send_signal(signal.SIGKILL)
        monkeypatch.setenv("STANDIN_CALM", "1")
        return latest()

    return kill


@pytest.mark.slow
def test_a_killed_run_is_finished_in_one_report(
    killed: Killed, run_pytest: Run, mode: tuple[str, ...], pytester: pytest.Pytester, latest: Latest
) -> None:
    run = killed(*mode)
    judged = set(events(run, "judged"))
    assert "hang" not in judged
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume", "--junitxml", "own.xml", *mode)
    assert done.ret == 1
    done.stdout.fnmatch_lines([f"resumed reports/{run.name}: {len(judged)} of 4 cells are kept, *1 was in flight*"])
    assert latest() == run
    assert [path.name for path in run.parent.iterdir() if path.is_dir() and not path.is_symlink()] == [run.name]
    started = events(run, "started")
    assert started == Counter({"good": 1, "crash": 1, "good2": 1, "hang": 2})
    wanted = {f"{CELL}{how}": ["failure"] if how == "crash" else [] for how in HOWS}
    assert cases(run / "junit.xml") == wanted
    own = cases(pytester.path / "own.xml")
    assert {name.partition("[")[2].rstrip("]"): result for name, result in own.items()} == wanted
    assert "Of 4 cells, 3 work" in (run / "summary.md").read_text()
    assert "taken up again on" in (run / "summary.md").read_text()
    remembered = history.load_run(run.parent / "history.sqlite", run.name)
    assert [cell.scenario for cell in remembered.cells] == list(wanted)
    # What the part that was killed left of a cell is beside what it left this time.
    assert (run / "scenarios" / f"{CELL}hang" / "part-0" / "output.log").exists()


def test_a_cell_in_flight_says_who_ran_it(killed: Killed, mode: tuple[str, ...], pytester: pytest.Pytester) -> None:
    run = killed(*mode)
    # Workers whose controller was killed end by themselves; what follows waits for none of them.
    assert pytester.run(sys.executable, "-m", "pytest_hetgpu.cli", "report", str(run)).ret == 0
    [hang] = [
        case for suite in JUnitXml.fromfile(str(run / "junit.xml")) for case in suite if case.name == f"{CELL}hang"
    ]
    assert [(type(e).__name__, e.type) for e in hang.result] == [("Error", "unknown")]
    assert "cut short: started at" in hang.result[0].message
    assert "which ran it, is" in hang.result[0].message
    assert "index.html" in {path.name for path in run.iterdir()}


@pytest.mark.slow
def test_kept_cells_are_as_they_were_known_and_failing(
    killed: Killed, run_pytest: Run, mode: tuple[str, ...], latest: Latest
) -> None:
    run = killed(*mode, more=KNOWN)
    for _ in range(2):  # once to finish it, once with nothing left
        done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume", run.name, "-rx", *mode)
        assert done.ret == 0
        done.assert_outcomes(passed=3, xfailed=1)
    done.stdout.fnmatch_lines(["resumed *: 4 of 4 cells are kept, nothing is left to run", "known*crash*(kept)"])
    assert cases(run / "junit.xml")[f"{CELL}crash"] == ["skipped"]
    assert events(run, "started") == Counter({"good": 1, "crash": 1, "good2": 1, "hang": 2})


def test_what_is_not_selected_stays_missing(killed: Killed, run_pytest: Run, mode: tuple[str, ...]) -> None:
    run = killed(*mode)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume", "--hetgpu-cell", f"{CELL}hang", *mode)
    assert done.ret == 0
    done.assert_outcomes(passed=1)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume", "-k", "good", *mode)
    assert done.ret == 0
    done.assert_outcomes(passed=2, deselected=0 if "-n2" in mode else 2)
    assert events(run, "started")["hang"] == 2
    assert f"{CELL}hang" in cases(run / "junit.xml")


def test_a_failure_that_is_kept_does_not_stop_what_is_still_to_be_run(killed: Killed, run_pytest: Run) -> None:
    killed("-p", "no:xdist")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume", "-x")
    done.assert_outcomes(passed=3, failed=1)


def test_what_changed_is_said_before_anything_starts(killed: Killed, run_pytest: Run, mode: tuple[str, ...]) -> None:
    run = killed(*mode)
    before = (run / "journal" / "main.jsonl").read_bytes()
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume", "--hetgpu-timeout", "60", *mode)
    assert done.ret == 4
    done.stderr.fnmatch_lines(
        ["ERROR: *cannot be resumed*", "  --hetgpu-timeout: was 120, is 60", "put that back, or*"]
    )
    assert (run / "journal" / "main.jsonl").read_bytes() == before


def test_without_a_run_there_is_nothing_to_resume(run_pytest: Run, matrix: Write) -> None:
    matrix(["good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: there is no run in *reports to resume; start one without --hetgpu-resume"])


def test_a_plan_resumes_nothing(run_pytest: Run, matrix: Write) -> None:
    matrix(["good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-plan", "--hetgpu-resume")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: --hetgpu-resume *--hetgpu-plan starts nothing: leave one out"])


def test_a_run_that_goes_on_is_refused(
    run_pytest: Run, matrix: Write, pytester: pytest.Pytester, nothing_left: None
) -> None:
    matrix(HOWS)
    fifo = pytester.path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "pytest", "--hetgpu-matrix", "demo.yaml", "-p", "no:xdist"]
    environ = {**os.environ, "STANDIN_FIFO": str(fifo)}
    with subprocess.Popen(command, cwd=pytester.path, env=environ, stdout=subprocess.DEVNULL) as run:
        wait_for_word(fifo)
        done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume")
        run.kill()
    assert done.ret == 4
    done.stderr.fnmatch_lines([f"ERROR: *reports/*: process {run.pid} is still running it; wait for its end*"])


ACCEPTS = """
def test_it(scenario, run):
    assert run(check=False).kind.value in ("passed", "crash")
"""


def test_a_test_that_accepts_a_crash_passes_when_it_is_kept(
    run_pytest: Run, matrix: Write, mode: tuple[str, ...], pytester: pytest.Pytester, stacks: Path
) -> None:
    assert stacks
    matrix(["good", "crash"])
    pytester.makepyfile(test_own=ACCEPTS)
    for resume in ((), ("--hetgpu-resume",)):
        done = run_pytest("--hetgpu-matrix", "demo.yaml", *resume, *mode, "test_own.py")
        done.assert_outcomes(passed=2)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, with room for little."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(place))
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount")
    yield place
    subprocess.run(("umount", str(place)), check=True)


def test_a_disk_that_is_full_ends_the_session_in_order(
    run_pytest: Run, matrix: Write, mode: tuple[str, ...], small: Path, stacks: Path, pytester: pytest.Pytester
) -> None:
    assert stacks
    matrix(["good", "flood", "good2"])
    options = ("--hetgpu-matrix", "demo.yaml", "--hetgpu-reports", str(small), *mode)
    done = run_pytest(*options)
    assert done.ret == 2
    done.stdout.fnmatch_lines([f"new*{CELL}flood*not recorded: *No space left on device*", "*reports: not written*"])
    run = (small / "latest").resolve()
    assert json.loads((run / "journal" / "main.jsonl").read_text().splitlines()[0])["event"] == "run"
    subprocess.run(("mount", "-o", "remount,size=40m", str(small)), check=True)
    assert pytester.run(sys.executable, "-m", "pytest_hetgpu.cli", "report", str(run)).ret == 0
    cases_found = [case for suite in JUnitXml.fromfile(str(run / "junit.xml")) for case in suite]
    [why] = [case.result[0].message for case in cases_found if case.name == f"{CELL}flood"]
    assert "No space left on device" in why
    done = run_pytest(*options, "--hetgpu-resume")
    assert done.ret == 0
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(["*could not be recorded*"])
    assert cases(run / "junit.xml") == {f"{CELL}{how}": [] for how in ("good", "flood", "good2")}


def test_a_worker_that_is_killed_costs_its_cell_only(
    run_pytest: Run, matrix: Write, latest: Latest, pytester: pytest.Pytester, nothing_left: None
) -> None:
    pytest.importorskip("xdist.plugin")
    matrix(HOWS)
    fifo = pytester.path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "pytest", "--hetgpu-matrix", "demo.yaml", "-n2"]
    environ = {**os.environ, "STANDIN_FIFO": str(fifo)}
    with subprocess.Popen(command, cwd=pytester.path, env=environ, stdout=subprocess.PIPE, text=True) as run:
        wait_for_word(fifo)
        [pid] = [event["pid"] for event in in_flight(latest())]
        os.kill(pid, signal.SIGKILL)
        printed, _ = run.communicate(timeout=60)
    assert run.returncode == 1, printed
    found = cases(latest() / "junit.xml")
    assert found == {f"{CELL}{how}": [] for how in ("good", "good2")} | {
        f"{CELL}crash": ["failure"],
        f"{CELL}hang": ["error"],
    }
    page = (latest() / "summary.md").read_text()
    assert f"process {pid} (gw" in page
    assert "which ran it, is gone: killed" in page


def in_flight(run: Path) -> list[dict[str, Any]]:
    """The events of cells that were started and have not ended."""
    lines = [json.loads(line) for path in run.glob("journal/*.jsonl") for line in path.read_text().splitlines()]
    ended = {line["scenario"] for line in lines if line["event"] in ("finished", "judged")}
    return [line for line in lines if line["event"] == "started" and line["scenario"] not in ended]


SHIM = """
import time
from pathlib import Path
real = time.time
time.time = lambda: real() - (7200 if Path("back").exists() else 0)
"""


def test_a_clock_that_goes_back(
    run_pytest: Run,
    matrix: Write,
    latest: Latest,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    stacks: Path,
    mode: tuple[str, ...],
) -> None:
    """No clock of a machine is ours to set, and no namespace has a wall clock: pytest's own time is shifted."""
    assert stacks
    matrix(["good", "crash"])
    (pytester.path / "shim").mkdir()
    (pytester.path / "shim" / "sitecustomize.py").write_text(SHIM)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path / "shim"))
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-cell", f"{CELL}good", *mode)
    (pytester.path / "back").touch()
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume", *mode)
    assert done.ret == 1
    assert "history" not in done.stdout.str()
    assert cases(latest() / "junit.xml") == {f"{CELL}good": [], f"{CELL}crash": ["failure"]}
    lines = [line for path in latest().glob("journal/*.jsonl") for line in path.read_text().splitlines()]
    epochs = {part: [e["epoch"] for e in map(json.loads, lines) if e["part"] == part] for part in (0, 1)}
    assert max(epochs[1]) < min(epochs[0]) - 3600
