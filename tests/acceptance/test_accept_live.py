"""The view of running cells at a real terminal: what is seen meanwhile, and that nothing of it stays."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.at_a_terminal import Terminal, without_times

Matrix = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("stacks")
LABEL = "two-ob1-tcp-allreduce-wait"
VIEW = "cells ended"


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a cell waits at until something is written to it."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    monkeypatch.setenv("STANDIN_GATE", str(path))
    return path


def start(pytester: pytest.Pytester, *arguments: str) -> Terminal:
    argv = (sys.executable, "-m", "pytest", "--hetgpu-matrix", "demo.yaml", "-p", "no:cacheprovider", *arguments)
    return Terminal(argv, pytester.path)


@pytest.mark.parametrize("arguments", [("-p", "no:xdist"), ("-p", "no:xdist", "-v"), ("-n2",)])
def test_what_runs_is_seen_and_nothing_of_it_stays(
    pytester: pytest.Pytester, matrix: Matrix, gate: Path, arguments: tuple[str, ...]
) -> None:
    if "-n2" in arguments:
        pytest.importorskip("xdist.plugin")
    matrix(("good", "wait"))
    terminal = start(pytester, *arguments)
    shown = terminal.until(lambda text: VIEW in text and "measured allreduce, 1K" in text)
    assert re.search(rf"^ *\d+ s +{LABEL} +measured allreduce, 1K float32$", shown, re.MULTILINE)
    assert re.search(r"^\d of 2 cells ended", shown, re.MULTILINE)
    gate.write_text("go on")
    seen = terminal.end()
    assert terminal.status == 0
    assert VIEW not in seen
    assert LABEL in seen
    if "-n2" in arguments:  # whose lines come as the workers end
        return
    off = start(pytester, *arguments, "--hetgpu-live", "off", "--hetgpu-history", "off")
    gate.write_text("go on")
    assert without_times(seen) == without_times(off.end())
    assert VIEW.encode() not in off.raw


@pytest.mark.parametrize("arguments", [("-q",), ("-s",), ("--hetgpu-live=off",)])
def test_it_keeps_still(pytester: pytest.Pytester, matrix: Matrix, gate: Path, arguments: tuple[str, ...]) -> None:
    matrix(("wait",))
    terminal = start(pytester, *arguments)
    gate.write_text("go on")
    terminal.end()
    assert terminal.status == 0
    assert VIEW.encode() not in terminal.raw


def test_where_there_is_no_terminal_there_are_plain_lines(
    pytester: pytest.Pytester, matrix: Matrix, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    matrix()
    said = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-live", "on").stdout.str()
    assert "\x1b" not in said
    assert "ok       two-ob1-tcp-allreduce-good" in said
    assert "live view: standard output is no terminal, there is nothing to draw on" in said


def test_a_debugger_has_the_terminal_for_itself(pytester: pytest.Pytester, matrix: Matrix) -> None:
    matrix(("crash",))
    terminal = start(pytester, "--pdb", "--hetgpu-live", "on")
    terminal.until(lambda text: "(Pdb)" in text)
    at = len(terminal.raw)
    terminal.type("p 6 * 7\n")
    terminal.until(lambda text: "\n42\n" in text)
    terminal.type("c\n")
    terminal.end()
    assert terminal.status == 1
    assert VIEW.encode() not in terminal.raw[at:]


def test_it_is_gone_after_ctrl_c(pytester: pytest.Pytester, matrix: Matrix, gate: Path) -> None:
    matrix(("wait",))
    terminal = start(pytester)
    terminal.until(lambda text: "measured allreduce, 1K" in text)
    terminal.type("\x03")
    seen = terminal.end()
    assert terminal.status == 2
    assert VIEW not in seen
    assert "the run was stopped (SIGINT)" in seen


def test_what_is_new_ends_the_run(
    pytester: pytest.Pytester, matrix: Matrix, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    matrix(("good", "crash"))
    first = run_pytest("--hetgpu-matrix", "demo.yaml").stdout.str()
    assert "new: SIGSEGV@libuct.so!uct_tcp_ep_am_short (two-ob1-tcp-allreduce-crash)" in first
    assert "since " not in first
    second = run_pytest("--hetgpu-matrix", "demo.yaml").stdout.str()
    assert re.search(r"^since \d{8}-\S+ \(.* UTC\): 2 cells are as they were$", second, re.MULTILINE)
    matrix(("good", "crash"))
    path = pytester.path / "demo.yaml"
    path.write_text(path.read_text().replace("good: {env: {BEHAVE: good}}", "good: {env: {BEHAVE: wrong}}"))
    third = run_pytest("--hetgpu-matrix", "demo.yaml").stdout.str()
    assert "  worse: was passed, is wrong result" in third
    quiet = run_pytest("--hetgpu-matrix", "demo.yaml", "-q").stdout.str()
    assert "new: SIGSEGV@libuct.so!uct_tcp_ep_am_short" in quiet
    assert "since " not in quiet
