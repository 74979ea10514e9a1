"""Workers that a signal has stopped: found by their open journals, continued, and named once."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_hetgpu.session.xdist import stopped_workers
from tests.xdist_here import has_xdist

HOLDING = "import sys; file = open(sys.argv[1], 'a'); print('open', flush=True); sys.stdin.read()"
Worker = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    """Starts a child that has this file below the run open, and stops it."""
    started = []

    def start(name: str) -> subprocess.Popen[str]:
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        argv = (sys.executable, "-c", HOLDING, str(path))
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout
        child.stdout.readline()
        child.send_signal(signal.SIGSTOP)
        until(lambda: state(child) == "T")
        return child

    yield start
    for child in started:
        with child:
            child.kill()


def state(process: subprocess.Popen[str]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not look() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert look()


@pytest.mark.parametrize("fate", ["there", "renamed", "deleted"])
def test_a_stopped_worker_is_continued_wherever_its_folder_is(worker: Worker, tmp_path: Path, fate: str) -> None:
    child = worker("journal/gw3.jsonl")
    if fate == "renamed":
        (tmp_path / "run").rename(tmp_path / "moved")
    elif fate == "deleted":
        shutil.rmtree(tmp_path / "run")
    assert list(stopped_workers.continued()) == [
        f"worker gw3 (pid {child.pid}) was stopped by a signal (state T): it was sent SIGCONT, "
        "and has 10 s to end its cell before pytest-xdist kills it"
    ]
    until(lambda: state(child) == "S")
    assert list(stopped_workers.continued()) == []


@pytest.mark.parametrize("name", ["journal/main.jsonl", "gw3.jsonl", "journal/gw3.jsonl.old"])
def test_another_child_stays_stopped(worker: Worker, name: str) -> None:
    child = worker(name)
    assert list(stopped_workers.continued()) == []
    assert state(child) == "T"


def test_each_is_named_once_and_continued_each_time(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopped_workers, "_PAUSE", 0.01)
    child = worker("journal/gw0.jsonl")
    said: list[str] = []
    stopped_workers.keep_awake(said.append)
    (looking,) = (thread for thread in threading.enumerate() if thread.name == "hetgpu awake")
    until(lambda: state(child) == "S")
    child.send_signal(signal.SIGSTOP)
    until(lambda: state(child) == "S")
    looking.join(60)
    assert [line.split()[1] for line in said] == ["gw0"]


def test_the_time_that_is_named_is_that_of_xdist(lacking: Callable[[str, str], None]) -> None:
    if not has_xdist():
        lacking("xdist", "pytest-xdist is not installed")
    from xdist.workermanage import NodeManager

    assert stopped_workers._EXIT == NodeManager.EXIT_TIMEOUT
