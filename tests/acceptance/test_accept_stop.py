"""A session that is stopped from outside: the cell in flight is in no report a pass, and nothing is left running."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from junitparser import JUnitXml

from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.cells import read_cells

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HANG = "two-ob1-tcp-allreduce-hang"


def verdicts(path: Path) -> dict[str, list[str]]:
    return {
        case.name: [type(e).__name__.lower() for e in case.result]
        for suite in JUnitXml.fromfile(str(path))
        for case in suite
    }


def as_in_a_terminal() -> None:
    """Whoever runs these tests in the background may have these signals ignored."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def wait_for_word(fifo: Path) -> None:
    """Until the hanging cell says that it is up."""
    reader = os.open(fifo, os.O_RDWR)
    try:
        assert select.select([reader], [], [], 60)[0], "the hanging cell never came up"
    finally:
        os.close(reader)


def hanging(place: Path, *options: str) -> subprocess.Popen[str]:
    """Start a session of demo.yaml, and wait until its hanging cell is up."""
    fifo = place / "fifo"
    os.mkfifo(fifo)
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--hetgpu-matrix", "demo.yaml", *options],
        cwd=place,
        env={**os.environ, "STANDIN_FIFO": str(fifo)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=as_in_a_terminal,  # noqa: PLW1509 - no other thread of this process takes a lock
    )
    try:
        wait_for_word(fifo)
    except BaseException:
        run.kill()
        raise
    return run


def ended_in_order(run: Path, own: Path, stacks: Path) -> None:
    """The cell in flight has no verdict: a skip in our JUnit and in pytest's. No process of a stack is left."""
    (hang,) = (cell for cell in read_cells(run) if cell.label == HANG)
    assert (hang.outcome.kind, hang.outcome.verdict) == (Kind.UNKNOWN, Verdict.NOT_RUN)
    assert hang.outcome.why.startswith("the run was stopped")
    ours, theirs = verdicts(run / "junit.xml"), verdicts(own)
    assert ours[HANG] == ["skipped"]
    assert next(found for name, found in theirs.items() if HANG in name) == ["skipped"]
    left = [p for p in psutil.process_iter(["cmdline"]) if str(stacks) in " ".join(p.info["cmdline"] or ())]
    assert not left


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_in_mid_cell(
    matrix: Callable[..., Path],
    stacks: Path,
    latest: Callable[[], Path],
    pytester: pytest.Pytester,
    mode: tuple[str, ...],
    number: signal.Signals,
) -> None:
    matrix(["good", "hang"])
    run = hanging(pytester.path, "--junitxml", "own.xml", *mode)
    run.send_signal(number)
    printed, _ = run.communicate(timeout=50)
    assert run.returncode == 2, printed
    ended_in_order(latest(), pytester.path / "own.xml", stacks)


def test_a_terminal_that_is_closed_in_mid_cell(
    matrix: Callable[..., Path],
    stacks: Path,
    latest: Callable[[], Path],
    pytester: pytest.Pytester,
    mode: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix(["good", "hang"])
    fifo = pytester.path / "fifo"
    os.mkfifo(fifo)
    monkeypatch.setenv("STANDIN_FIFO", str(fifo))
    command = [sys.executable, "-m", "pytest", "--hetgpu-matrix", "demo.yaml", "--junitxml", "own.xml", *mode]
    pid, terminal = pty.fork()
    if pid == 0:
        as_in_a_terminal()
        os.execv(command[0], command)
    reader = os.open(fifo, os.O_RDWR)
    while not select.select([reader], [], [], 0)[0]:
        assert select.select([reader, terminal], [], [], 60)[0], "the hanging cell never came up"
        if select.select([terminal], [], [], 0)[0]:
            os.read(terminal, 65536)
    os.close(reader)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    ended_in_order(latest(), pytester.path / "own.xml", stacks)
    assert (latest() / "index.html").exists()


def test_whoever_reads_what_is_printed_may_go_first(
    matrix: Callable[..., Path], stacks: Path, latest: Callable[[], Path], pytester: pytest.Pytester
) -> None:
    """As `pytest | tee` on Ctrl-C, which ends tee at once."""
    assert stacks
    matrix(["good", "hang"])
    fifo = pytester.path / "fifo"
    os.mkfifo(fifo)
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--hetgpu-matrix", "demo.yaml", "-p", "no:xdist"],
        cwd=pytester.path,
        env={**os.environ, "STANDIN_FIFO": str(fifo)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=as_in_a_terminal,  # noqa: PLW1509 - no other thread of this process takes a lock
    )
    wait_for_word(fifo)
    assert run.stdout is not None
    run.stdout.close()
    run.send_signal(signal.SIGINT)
    assert run.wait(50) == 2
    assert verdicts(latest() / "junit.xml")[HANG] == ["skipped"]


def test_who_is_in_a_hurry_gets_the_reports_too(
    matrix: Callable[..., Path], stacks: Path, latest: Callable[[], Path], pytester: pytest.Pytester
) -> None:
    """A second Ctrl-C, a third: as long as pytest is there."""
    matrix(["good", "hang"])
    run = hanging(pytester.path, "-p", "no:xdist")
    for _ in range(2):
        run.send_signal(signal.SIGINT)
    assert run.stdout is not None
    for line in run.stdout:
        if "Interrupted" in line or "KeyboardInterrupt" in line:
            break
    printed, _ = run.communicate(timeout=50)
    assert run.returncode == 2, printed
    assert verdicts(latest() / "junit.xml")[HANG] == ["skipped"]
    left = [p for p in psutil.process_iter(["cmdline"]) if str(stacks) in " ".join(p.info["cmdline"] or ())]
    assert not left


def test_a_stopped_cell_is_run_when_the_run_is_resumed_and_is_not_worse(
    matrix: Callable[..., Path],
    stacks: Path,
    latest: Callable[[], Path],
    pytester: pytest.Pytester,
    run_pytest: Callable[..., pytest.RunResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert stacks
    matrix(["good", "hang"])
    monkeypatch.setenv("STANDIN_CALM", "1")
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "-p", "no:xdist").ret == 0
    good = latest()
    monkeypatch.delenv("STANDIN_CALM")
    run = hanging(pytester.path, "-p", "no:xdist")
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=50)
    stopped = latest()
    done = pytester.run(sys.executable, "-m", "pytest_hetgpu.cli", "compare", str(good), str(stopped))
    assert done.ret == 0, done.stdout.str()
    monkeypatch.setenv("STANDIN_CALM", "1")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume", "-p", "no:xdist")
    done.stdout.fnmatch_lines(["resumed *: 1 of 2 cells are kept, 1 to run (1 was in flight)"])
    assert done.ret == 0
    assert verdicts(latest() / "junit.xml")[HANG] == []


def is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.usefixtures("stacks")
def test_a_watchdog_that_is_killed_is_started_again(
    matrix: Callable[..., Path], pytester: pytest.Pytester, mode: tuple[str, ...]
) -> None:
    matrix(["good", "hang"])
    run = hanging(pytester.path, "--hetgpu-timeout", "600", *mode)

    def watchdogs() -> set[psutil.Process]:
        below = psutil.Process(run.pid).children(recursive=True)
        return {one for one in below if is_running(one) and "watchdog.py" in " ".join(one.cmdline())}

    try:
        first = watchdogs()
        assert first
        for one in first:
            one.kill()
        deadline = time.monotonic() + 60
        while not (found := watchdogs() - first):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        printed, _ = run.communicate(timeout=100)
    finally:
        run.kill()
    # Without workers, the process that lost its watchdog is the one that prints.
    if not "".join(mode).endswith("2"):
        assert "the watchdog of this run was killed, and started again (1 x)" in printed
    deadline = time.monotonic() + 60
    while any(map(is_running, found)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
