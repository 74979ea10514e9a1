"""Agents on several nodes as one program, with a stand-in for torchrun: the order and the codes of their ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import pytest_hetgpu

PROGRAM = Path(pytest_hetgpu.__file__).parent / "remote" / "torchruns.py"
LIMIT = 60.0
STAND_IN = """
import os, pathlib, sys, time
arguments = sys.argv[1:]
logs = pathlib.Path(arguments[arguments.index("--log-dir") + 1])
os.write(1, f"agent {arguments[-1]} {logs} {logs.is_dir()}\\n".encode())
pathlib.Path(arguments[-2]).touch()
if arguments[-1] == "killed":
    print("said before")
    os.kill(os.getpid(), 9)
if arguments[-1] == "stay":
    time.sleep(600)
sys.exit(int(arguments[-1]))
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module torch.distributed.run that prints its log folder, and exits with its last argument or stays."""
    package = tmp_path / "lib" / "torch" / "distributed"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "run.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    return tmp_path


def context(there: Path, ends: str) -> list[str]:
    return [
        "-np",
        "1",
        "-H",
        "localhost",
        "env",
        "A=b",
        sys.executable,
        "-m",
        "torch.distributed.run",
        str(there),
        ends,
    ]


def start(*contexts: list[str]) -> subprocess.Popen[str]:
    tokens = [token for one in contexts for token in (":", *one)][1:]
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *tokens], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def folders(output: str) -> Iterator[str]:
    for line in output.splitlines():
        if line.startswith("agent"):
            _, _, logs, there = line.split()
            assert there == "True"
            yield logs


def gone(program: subprocess.Popen[str], processes: list[psutil.Process]) -> bool:
    program.communicate(timeout=LIMIT)
    _, alive = psutil.wait_procs(processes, timeout=LIMIT)
    return not alive


def test_the_first_that_fails_gives_the_code_and_no_log_stays(stand_in: Path) -> None:
    program = start(context(stand_in / "a", "0"), context(stand_in / "b", "7"), context(stand_in / "c", "0"))
    output, _ = program.communicate(timeout=LIMIT)
    assert program.returncode == 7
    logs = list(folders(output))
    assert len(logs) == 3
    assert not any(Path(path).exists() for path in logs)


def test_all_good_is_good(stand_in: Path) -> None:
    program = start(context(stand_in / "a", "0"), context(stand_in / "b", "0"))
    program.communicate(timeout=LIMIT)
    assert program.returncode == 0


@pytest.mark.slow
def test_one_that_stays_is_ended_when_another_has_failed(stand_in: Path) -> None:
    program = start(context(stand_in / "a", "stay"), context(stand_in / "b", "3"))
    output, _ = program.communicate(timeout=LIMIT)
    assert program.returncode == 3
    assert not any(Path(path).exists() for path in folders(output))


def test_what_an_agent_said_before_it_was_killed_stays(stand_in: Path) -> None:
    program = start(context(stand_in / "a", "killed"))
    output, _ = program.communicate(timeout=LIMIT)
    assert program.returncode == 128 + signal.SIGKILL
    assert "said before" in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_agents_end_with_their_launcher(stand_in: Path, number: int) -> None:
    marks = [stand_in / "a", stand_in / "b"]
    program = start(*(context(mark, "stay") for mark in marks))
    limit = time.monotonic() + LIMIT
    while not all(mark.exists() for mark in marks):
        assert time.monotonic() < limit
        assert program.poll() is None
        os.sched_yield()
    processes = psutil.Process(program.pid).children(recursive=True)
    assert processes
    program.send_signal(number)
    assert gone(program, processes)
    assert not list(stand_in.glob("hetgpu-torchrun-*"))


@pytest.mark.parametrize("tokens", [[], ["-np", "2"], ["-H", "a", "-np", "2", "x"], ["-np", "1", "-H", "a", "x", ":"]])
def test_what_is_no_context_is_said(tokens: list[str]) -> None:
    done = subprocess.run([sys.executable, str(PROGRAM), *tokens], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "a context is -np RANKS -H HOST COMMAND..." in done.stderr
