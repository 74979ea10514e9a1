"""Nothing of a job outlives its run, and nothing else is touched."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import pytest_hetgpu
from pytest_hetgpu.extensions.runtimes.local import Local
from pytest_hetgpu.extensions.runtimes.process import tree
from pytest_hetgpu.extensions.runtimes.process.kernel import custody
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.model.outcome import RunResult

HERE = Path(__file__).parent
CROWD = (sys.executable, "-S", str(HERE / "crowd.py"))
ROLES = ("plain", "group", "session", "deaf", "stopped", "stray", "wiped")
SLEEPER = (sys.executable, "-S", "-c", "import signal; signal.pause()")
TURN_TAKER_PROGRAM = """if True:
    import os, signal, sys
    os.write(os.open(sys.argv[1], os.O_WRONLY), b"ready\\n")
    os.read(os.open(sys.argv[2], os.O_RDONLY), 1)
    exec(sys.argv[3])
    sys.exit(7)
"""
TURN_TAKER = (sys.executable, "-S", "-c", TURN_TAKER_PROGRAM)
PATIENCE = 60.0
PR_GET_CHILD_SUBREAPER = 37


class News:
    """A fifo to hear from a process that a test has set going."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self._file = os.open(path, os.O_RDWR)

    def line(self) -> str:
        """The next line, however long it takes (within reason)."""
        said = b""
        while not said.endswith(b"\n"):
            assert select.select([self._file], [], [], PATIENCE)[0], f"heard only {said!r}"
            said += os.read(self._file, 1)
        return said.decode().strip()

    def tell(self, line: str) -> None:
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


@pytest.fixture
def news(tmp_path: Path) -> Iterator[News]:
    fifo = News(tmp_path / "news")
    yield fifo
    fifo.close()


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output.log"


def crowd(output: Path, manner: str, *roles: str, timeout: float = PATIENCE, grace: float = 0.4) -> RunResult:
    return Local(grace=grace).run(Command((*CROWD, manner, "-", *roles)), output=output, timeout=timeout)


def pids(output: Path) -> dict[str, int]:
    """Who was there, by role, as the crowd's launcher printed it."""
    return {role: int(pid) for role, pid in (line.split() for line in output.read_text().splitlines())}


def alive(output: Path) -> list[str]:
    return [role for role, pid in pids(output).items() if psutil.pid_exists(pid)]


def drive(manner: str, output: Path, *argv: str, grace: float = 0.4) -> subprocess.Popen[str]:
    root = str(Path(pytest_hetgpu.__file__).parent.parent)
    command = [sys.executable, str(HERE / "driver.py"), manner, str(output), str(PATIENCE), str(grace), *argv]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root})


def report(driver: subprocess.Popen[str]) -> dict[str, Any]:
    with driver:
        said, _ = driver.communicate(timeout=PATIENCE)
    found = json.loads(said)
    assert isinstance(found, dict)
    return found


def test_after_a_timeout_no_rank_is_left(output: Path) -> None:
    result = crowd(output, "stay", *ROLES, timeout=1.5)
    assert result.timed_out
    assert set(pids(output)) == {*ROLES, "launcher"}
    assert alive(output) == []
    assert result.returncode == -signal.SIGTERM
    assert len(result.survivors) == len(ROLES)


def test_a_launcher_that_ignores_term_is_killed_with_its_ranks(output: Path) -> None:
    result = crowd(output, "deaf", "plain", "stray", timeout=1.0, grace=0.1)
    assert result.timed_out
    assert result.returncode == -signal.SIGKILL
    assert set(pids(output)) == {"plain", "stray", "launcher"}
    assert alive(output) == []


def test_a_stopped_launcher_is_let_go_on_to_clean_up(output: Path) -> None:
    program = "import os, signal, sys; signal.signal(15, lambda *_: sys.exit(9)); os.kill(os.getpid(), signal.SIGSTOP)"
    result = Local().run(Command((sys.executable, "-S", "-c", program)), output=output, timeout=0.5)
    assert (result.timed_out, result.returncode) == (True, 9)


def test_what_outlives_its_launcher_is_stopped_and_named(output: Path) -> None:
    result = crowd(output, "leave", *ROLES)
    assert (result.returncode, result.timed_out) == (0, False)
    assert set(pids(output)) == {*ROLES, "launcher"}
    assert alive(output) == []
    named = {int(text.rpartition("(")[2].rstrip(")")) for text in result.survivors}
    assert named == set(pids(output).values()) - {pids(output)["launcher"]}
    assert all(text.startswith("python") for text in result.survivors)


def test_what_ends_by_itself_just_after_its_launcher_is_no_survivor(output: Path) -> None:
    before = {child.pid for child in psutil.Process().children()}
    linger = "import os, signal\nif os.fork() == 0: os.setsid(), signal.sigtimedwait([], 0.05)"
    result = Local().run(Command((sys.executable, "-S", "-c", linger)), output=output, timeout=PATIENCE)
    assert (result.returncode, result.survivors) == (0, ())
    born = [child for child in psutil.Process().children() if child.pid not in before]
    assert not [child for child in born if child.status() == psutil.STATUS_ZOMBIE]


def test_other_children_are_left_alone(output: Path) -> None:
    others = [subprocess.Popen(SLEEPER, start_new_session=new) for new in (False, True)]
    others.append(subprocess.Popen(SLEEPER, start_new_session=True, env={}))
    try:
        crowd(output, "leave", "stray")
        assert alive(output) == []
        assert [other.poll() for other in others] == [None] * 3
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_children_that_another_thread_starts_meanwhile_are_left_alone(tmp_path: Path, output: Path, news: News) -> None:
    answer = News(tmp_path / "answer")
    others: list[subprocess.Popen[bytes]] = []

    def start_others() -> None:
        news.line()
        others.append(subprocess.Popen(SLEEPER, start_new_session=True))
        others.append(subprocess.Popen(SLEEPER, env={}))
        others.append(subprocess.Popen(["/bin/false"]))
        os.waitid(os.P_PID, others[-1].pid, os.WEXITED | os.WNOWAIT)
        answer.tell("go")

    thread = threading.Thread(target=start_others)
    thread.start()
    stray = "if os.fork() == 0: os.setsid(), signal.pause()"
    result = Local().run(Command((*TURN_TAKER, news.path, answer.path, stray)), output=output, timeout=PATIENCE)
    thread.join(PATIENCE)
    answer.close()
    found = [other.poll() for other in others]
    for other in others:
        other.kill()
        other.wait()
    assert (result.returncode, len(result.survivors)) == (7, 1)
    assert found == [None, None, 1]


def test_an_orphan_of_other_children_is_left_alone(output: Path, news: News) -> None:
    """It falls to us while the job runs, because its parent dies just then."""
    parent_dies = (
        "import os, select, sys; p = int(sys.argv[1]); f = os.pidfd_open(p); os.kill(p, 9); select.select([f], [], [])"
    )
    with subprocess.Popen([*CROWD, "stay", news.path, "session", "group"], stdout=subprocess.PIPE, text=True) as other:
        assert news.line() == "ready"
        assert other.stdout
        there = dict(other.stdout.readline().split() for _ in range(3))
        try:
            killer = Command((sys.executable, "-S", "-c", parent_dies, str(other.pid)))
            result = Local().run(killer, output=output, timeout=PATIENCE)
            assert (result.returncode, result.survivors) == (0, ())
            assert all(psutil.pid_exists(int(there[role])) for role in ("session", "group"))
        finally:
            for role in ("session", "group"):
                os.kill(int(there[role]), signal.SIGKILL)
            for role in ("session", "group"):
                os.waitpid(int(there[role]), 0)


def test_jobs_of_two_threads_do_not_touch_each_other(tmp_path: Path, output: Path, news: News) -> None:
    answer = News(tmp_path / "answer")
    results: list[RunResult] = []

    def run_long() -> None:
        command = Command((*TURN_TAKER, news.path, answer.path, ""))
        results.append(Local().run(command, output=tmp_path / "long.log", timeout=PATIENCE))

    thread = threading.Thread(target=run_long)
    thread.start()
    assert news.line() == "ready"
    crowd(output, "leave", "stray", "wiped")
    assert alive(output) == []
    answer.tell("go")
    thread.join(PATIENCE)
    answer.close()
    assert [(result.returncode, result.survivors) for result in results] == [(7, ())]


def test_the_return_code_of_another_job_is_not_taken(output: Path) -> None:
    """Another thread's launcher has ended, and its thread has not come round to asking for its status."""
    with custody.held(), output.open("wb") as sink:
        mine, other = (tree.Tree(os.environ, word) for word in ("mine", "other"))
        other.launch(["/bin/false"], sink.fileno())
        assert other.wait(PATIENCE)
        mine.launch([*CROWD, "leave", "-", "stray"], sink.fileno())
        assert mine.wait(PATIENCE)
        assert mine.clear(0) == 0
        assert other.clear(0) == 1
    assert alive(output) == []


def test_orphans_fall_to_init_again_afterwards(output: Path) -> None:
    Local().run(Command(("/bin/true",)), output=output, timeout=PATIENCE)
    flag = ctypes.c_int(-1)
    ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(flag), 0, 0, 0)
    assert flag.value == 0


@pytest.mark.parametrize(
    ("manner", "number", "name"),
    [("plain", signal.SIGINT, "SIGINT"), ("term-interrupts", signal.SIGTERM, "SIGTERM")],
)
def test_an_interrupted_run_is_a_result_and_leaves_nothing(
    output: Path, news: News, manner: str, number: signal.Signals, name: str
) -> None:
    driver = drive(manner, output, *CROWD, "stay", news.path, *ROLES)
    assert news.line() == "ready"
    driver.send_signal(number)
    found = report(driver)
    assert (found["interrupted"], found["timed_out"]) == (name, False)
    assert set(pids(output)) == {*ROLES, "launcher"}
    assert alive(output) == []


def test_a_second_interrupt_goes_straight_to_kill(output: Path, news: News) -> None:
    driver = drive("plain", output, *CROWD, "deaf", news.path, *ROLES, grace=PATIENCE)
    assert news.line() == "ready"
    driver.send_signal(signal.SIGINT)
    assert news.line() == "TERM"
    driver.send_signal(signal.SIGINT)
    found = report(driver)
    assert (found["interrupted"], found["returncode"]) == ("SIGINT", -signal.SIGKILL)
    assert alive(output) == []


def test_an_interrupt_in_the_midst_of_starting_leaves_nothing(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such an interrupt comes out of Popen after the launcher was started, and nobody was told its pid."""
    started: list[int] = []

    class Interrupted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            started.append(self.pid)
            self.returncode = 0
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    result = crowd(output, "stay", "plain")
    assert (result.interrupted, result.returncode) == ("SIGINT", None)
    assert [pid for pid in started if psutil.pid_exists(pid)] == []
    assert not [child for child in psutil.Process().children() if child.pid in started]


def test_any_other_exception_comes_out_after_everything_is_stopped(output: Path, news: News) -> None:
    driver = drive("term-is-an-error", output, *CROWD, "stay", news.path, *ROLES)
    assert news.line() == "ready"
    driver.send_signal(signal.SIGTERM)
    assert report(driver)["raised"] == "RuntimeError('not an interrupt')"
    assert alive(output) == []


def test_a_return_code_that_nobody_can_know_is_not_success(output: Path) -> None:
    """Where SIGCHLD is ignored the kernel keeps no status, and Popen would say 0."""
    found = report(drive("ignores-children", output, "/bin/false"))
    assert (found["returncode"], found["timed_out"]) == (None, False)


def test_memory_does_not_grow_with_the_output(output: Path) -> None:
    size = 300 * 2**20
    program = "import os\nfor _ in range(300): os.write(1, b'x' * 2**20)"
    try:
        found = report(drive("plain", output, sys.executable, "-S", "-c", program))
        assert found["returncode"] == 0
        assert output.stat().st_size == size
        assert found["peak"] < size / 3
    finally:
        output.unlink()


def test_without_pidfd_it_works_the_same(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert crowd(output, "stay", *ROLES, timeout=1.5).timed_out
    assert set(pids(output)) == {*ROLES, "launcher"}
    assert alive(output) == []
    result = Local().run(Command(("/bin/false",)), output=output, timeout=PATIENCE)
    assert (result.returncode, result.timed_out) == (1, False)


def test_a_process_that_kill_does_not_end_is_named_and_given_up(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a rank that waits inside a GPU's driver, which only a signal that is never sent can stand for here."""
    monkeypatch.setattr(tree, "_signal", lambda processes, number: None)
    monkeypatch.setattr(tree, "_KILL_LIMIT", 0.1)
    result = crowd(output, "stay", "plain", timeout=0.5, grace=0.1)
    try:
        stuck = pids(output)
        assert result.returncode is None
        said = {text.partition("(")[2] for text in result.survivors}
        assert said == {f"{pid}), which KILL did not end" for pid in stuck.values()}
    finally:
        os.kill(stuck["plain"], signal.SIGKILL)
        os.kill(stuck["launcher"], signal.SIGKILL)
        os.waitpid(stuck["launcher"], 0)
