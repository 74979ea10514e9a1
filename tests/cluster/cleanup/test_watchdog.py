"""The guardian: there when something could be left, gone when nothing is, and at work when its run was killed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

import pytest_hetgpu
from pytest_hetgpu.cli.main import main
from pytest_hetgpu.cluster.cleanup.ledger import FOLDER_VARIABLE, ledgers

PATIENCE = 60.0
ROOT = Path(pytest_hetgpu.__file__).parent.parent
PROGRAM = """
import os, subprocess, sys, threading
from pathlib import Path
from typing import NoReturn
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.cluster.cleanup.tracker import track_resources
from pytest_hetgpu.extensions.runtimes.local import Local
guard = track_resources(os.environ["RUN"])
child = '''
import subprocess, sys, os, time
subprocess.Popen([sys.executable, "-c", "import os, time; os.setsid(); print('deep', flush=True); time.sleep(600)"])
time.sleep(600)
'''
if sys.argv[1] == "memory":
    # As if ranks had died with their launcher, and with this process, before anybody looked.
    guard.processes()
    os.close(os.open(os.environ["SEGMENT"], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    os.kill(os.getpid(), 9)
if sys.argv[1] == "kept":
    def keep() -> None:
        while True:
            guard.keep()
            threading.Event().wait(0.05)
    threading.Thread(target=keep, daemon=True).start()
if sys.argv[1] == "short":
    child = "print('deep')"
Local().run(Command((sys.executable, "-c", child), {}), output=Path(sys.argv[2]), timeout=600)
guard.close()
print("closed", flush=True)
"""


@pytest.fixture(autouse=True)
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "ledgers"))
    monkeypatch.setenv("RUN", f"run-{secrets.token_hex(4)}")  # other runs, dead or not, may be on this machine
    return tmp_path / "ledgers"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    with contextlib.ExitStack() as ending:

        def started(kind: str, *prefix: str) -> subprocess.Popen[str]:
            env = {**os.environ, "PYTHONPATH": str(ROOT)}
            argv = [*prefix, sys.executable, "-c", PROGRAM, kind, str(tmp_path / "output")]
            one = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True)
            ending.enter_context(one)
            ending.callback(one.kill)
            return one

        yield started


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def family(one: subprocess.Popen[str]) -> tuple[psutil.Process, list[psutil.Process]]:
    """Its guardian, and all else below it."""
    below = psutil.Process(one.pid).children(recursive=True)
    (guardian,) = (process for process in below if "watchdog.py" in " ".join(process.cmdline()))
    return guardian, [process for process in below if process != guardian]


def running(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def deep(tmp_path: Path) -> bool:
    output = tmp_path / "output"
    return output.exists() and "deep" in output.read_text()


def clean(*options: str) -> int:
    return main(["clean", "--run", os.environ["RUN"], *options])


Run = Callable[..., subprocess.Popen[str]]
Lacking = Callable[[str, str], NoReturn]


def test_a_run_that_ends_well_leaves_neither_guardian_nor_ledger(run: Run, books: Path) -> None:
    one = run("short")
    assert one.communicate(timeout=PATIENCE)[0] == "closed\n"
    assert list(books.iterdir()) == []
    assert not [p for p in psutil.process_iter() if str(books) in " ".join(_words(p))]


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def test_processes_of_a_killed_run_are_killed_wherever_they_went(run: Run, books: Path, tmp_path: Path) -> None:
    one = run("long")
    until(lambda: deep(tmp_path))
    guardian, ranks = family(one)
    assert len(ranks) == 2
    one.kill()
    until(lambda: not running(ranks))
    until(lambda: not list(books.iterdir()))
    until(lambda: not running([guardian]))


@pytest.fixture
def own_memory(lacking: Lacking) -> Iterator[int]:
    """The process number of a mount namespace with an empty /dev/shm: other runs remove unused segments, too."""
    unshare = shutil.which("unshare")
    if os.geteuid() or unshare is None or subprocess.run((unshare, "-m", "true"), check=False).returncode:
        lacking("netns", "a mount namespace needs root and unshare")
    script = "mount -t tmpfs tmpfs /dev/shm && echo ready && exec sleep 600"
    with subprocess.Popen((unshare, "-m", "sh", "-c", script), stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == "ready\n"
        yield keeper.pid
        keeper.kill()


def test_shared_memory_of_ranks_that_died_with_their_run_goes(
    run: Run, books: Path, monkeypatch: pytest.MonkeyPatch, own_memory: int
) -> None:
    before, since = "mpich_shm_1bb34a04_0", "mpich_shm_1bb34a05_0"
    monkeypatch.setenv("SEGMENT", f"/dev/shm/{since}")
    folder = Path(f"/proc/{own_memory}/root/dev/shm")
    (folder / before).touch(mode=0o600)
    assert run("memory", "nsenter", "-m", "-t", str(own_memory)).wait(PATIENCE) == -signal.SIGKILL
    until(lambda: not list(books.iterdir()))
    assert [path.name for path in folder.iterdir()] == [before]


def test_the_guardian_is_small_and_holds_nothing_of_the_run(run: Run, tmp_path: Path) -> None:
    one = run("long")
    until(lambda: deep(tmp_path))
    guardian, _ = family(one)
    assert guardian.memory_info().rss < 24 << 20
    assert os.getsid(guardian.pid) == guardian.pid
    assert guardian.cwd() == "/"
    assert one.stdout
    told = os.fstat(one.stdout.fileno()).st_ino
    held = [file.stat().st_ino for file in Path(f"/proc/{guardian.pid}/fd").iterdir()]
    assert told not in held
    one.kill()
    assert one.stdout.read() == ""  # whoever waits for its end does not hang


def test_clean_takes_over_when_the_guardian_is_killed_too(
    run: Run, books: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    one = run("long")
    until(lambda: deep(tmp_path))
    guardian, ranks = family(one)
    assert clean("--yes") == 0  # of a live run it touches nothing
    assert f"run {os.environ['RUN']} (" in capsys.readouterr().out
    assert len(running(ranks)) == 2
    guardian.kill()
    one.kill()
    one.wait()
    assert clean() == 1
    shown = capsys.readouterr().out
    assert "process" in shown
    assert os.environ["RUN"] in shown
    assert "hetgpu clean --yes" in shown
    assert len(running(ranks)) == 2
    assert clean("--yes") == 0
    assert not running(ranks)
    assert list(books.iterdir()) == []
    capsys.readouterr()
    assert clean() == 0
    assert capsys.readouterr().out == "nothing of a dead run was found\n"


def test_a_guardian_that_is_killed_is_started_again(run: Run, books: Path, tmp_path: Path) -> None:
    one = run("kept")
    until(lambda: deep(tmp_path))
    first, ranks = family(one)
    seen = {first.pid}
    for _ in range(2):
        first.kill()

        def another() -> bool:
            with contextlib.suppress(ValueError, psutil.Error):
                return family(one)[0].pid not in seen
            return False

        until(another)
        first = family(one)[0]
        seen.add(first.pid)
    one.kill()
    until(lambda: not running(ranks))
    until(lambda: not list(books.iterdir()))
    until(lambda: not running([first]))


def test_a_guardian_that_was_started_again_ends_with_its_run(books: Path, tmp_path: Path) -> None:
    program = PROGRAM.replace(
        "guard.close()", "guard._watchdog.kill()\nguard._watchdog.wait()\nguard.keep()\nguard.keep()\nguard.close()"
    )
    argv = [sys.executable, "-c", f"{program}print(guard.restarts)", "short", str(tmp_path / "output")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert said.stdout == "closed\n1\n"
    assert list(books.iterdir()) == []
    assert not [p for p in psutil.process_iter() if str(books) in " ".join(_words(p))]


def test_a_run_that_was_stopped_and_then_killed_with_its_whole_group_is_cleared_up_after(
    run: Run, books: Path, tmp_path: Path
) -> None:
    one = run("long")
    until(lambda: deep(tmp_path))
    _, ranks = family(one)
    one.send_signal(signal.SIGSTOP)
    os.killpg(one.pid, signal.SIGKILL)
    until(lambda: not running(ranks))


def test_a_run_without_a_place_for_its_ledger_goes_on_and_says_so(books: Path, tmp_path: Path) -> None:
    books.write_text("a file")
    program = PROGRAM + "print(guard.trouble)\n"
    argv = [sys.executable, "-c", program, "short", str(tmp_path / "output")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert "): if this run is killed, its processes and containers stay until `hetgpu clean`" in said.stdout
    assert deep(tmp_path)


def test_an_engine_that_does_not_answer_is_named_and_the_ledger_stays(
    run: Run, books: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = f"""
from pytest_hetgpu.cluster.cleanup.tracker import track_resources
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Location
from pytest_hetgpu.model.job import ConnectionInfo
import os, signal
guard = track_resources(os.environ["RUN"])
guard.place(Location("engine", "", ConnectionInfo("unix://{tmp_path}/gone.sock")), once=True)
guard._watchdog.kill()
os.kill(os.getpid(), signal.SIGKILL)
"""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], env=env, check=False, timeout=PATIENCE)
    assert len(list(ledgers(books))) == 1
    assert clean("--yes") == 1
    assert f"the Docker engine at unix://{tmp_path}/gone.sock was not looked at" in capsys.readouterr().err
    assert len(list(ledgers(books))) == 1
    assert clean("--yes", "--forget") == 1
    assert list(ledgers(books)) == []
    assert clean("--yes") == 0


@pytest.mark.parametrize("engine", ["nowhere", "http://x", "--yes"])
def test_what_is_no_engine_is_a_usage_error(engine: str) -> None:
    assert clean(f"--engine={engine}") == 4


def test_an_engine_here_that_is_nobodys_business_is_told_of_and_no_reason_to_fail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "engine.sock").write_text("no socket")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
    assert clean("--yes") == 0
    assert "was not looked at" in capsys.readouterr().err
    assert clean("--yes", "--engine", f"unix://{tmp_path}/engine.sock") == 1
