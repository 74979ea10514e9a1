"""The folder where those meet who share a tunnel: whose it is, who takes it away, who waits for it."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes._docker import tunnel as _tunnel
from pytest_hetgpu.extensions.runtimes._docker.tunnel import tunnel
from pytest_hetgpu.extensions.runtimes.process import ledger
from pytest_hetgpu.model.job import ConnectionInfo
from tests.extensions.runtimes.loopback import Loopback

PATIENCE = 60.0


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a program in the place of ssh was called with, which fails at once; temporary files are beside it."""
    program = tmp_path / "ssh"
    program.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\nexit 255\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / "calls"


@pytest.fixture
def meeting(calls: Path) -> Path:
    """The folder where users of a tunnel to `h` meet."""
    refusal()
    found = re.search(r"/(hetgpu-\w+)/", calls.read_text())
    assert found
    return calls.parent / found[1]


@pytest.fixture
def crowd() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def refusal() -> str:
    with pytest.raises(ProvisionError) as caught, tunnel("h", ConnectionInfo()):
        pass
    return str(caught.value)


def test_a_folder_that_somebody_else_keeps_locked_is_refused_at_once(meeting: Path, crowd: ThreadPoolExecutor) -> None:
    meeting.mkdir()
    meeting.chmod(0o777)
    number = os.open(meeting, os.O_RDONLY)
    fcntl.flock(number, fcntl.LOCK_EX)
    said = crowd.submit(refusal)
    try:
        assert said.result(PATIENCE / 10) == (
            f"h: {meeting} is not ours alone: remove it, or set TMPDIR to a folder of your own"
        )
    finally:
        os.close(number)
    assert meeting.is_dir()  # whoever's it is


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_folder_is_refused(meeting: Path, kind: str) -> None:
    meeting.touch() if kind == "file" else meeting.symlink_to(meeting.parent)
    assert re.match(f"h: {meeting} is not ours alone: remove it", refusal())


class _Labelled(ledger.Books):
    shared = "of a run"


def test_who_leaves_a_broken_tunnel_takes_no_label_from_a_newer_one(
    loopback: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger._Kept, "books", _Labelled())
    engine = str(tmp_path / "engine.sock")
    with socket.socket(socket.AF_UNIX) as there, ExitStack() as newer:
        there.bind(engine)
        with tunnel("127.0.0.1", loopback.reach, engine) as broken:
            Path(broken).unlink()
            again = newer.enter_context(tunnel("127.0.0.1", loopback.reach, engine))
        folder = Path(again).parent.parent
        assert (folder / ".owner").read_text() == "of a run"
        assert not Path(broken).parent.exists()
    assert not folder.exists()


def test_who_leaves_removes_no_folder_that_was_made_anew(meeting: Path) -> None:
    with _tunnel._alone(meeting, "h"):
        shutil.rmtree(meeting)
        meeting.mkdir()
    assert meeting.is_dir()


@pytest.mark.parametrize("there", ["nobody", "who has the lock", "another tunnel", "no folder"])
def test_the_shell_round_ssh_removes_the_folder_if_nobody_else_can(tmp_path: Path, there: str) -> None:
    one = tmp_path / "meeting" / "one"
    one.mkdir(parents=True)
    (one / "life").touch()
    (one.parent / ".owner").touch()
    if there == "another tunnel":
        (one.parent / "other").mkdir()
    number = os.open(one.parent, os.O_RDONLY)
    if there == "who has the lock":
        fcntl.flock(number, fcntl.LOCK_EX)
    ssh = f"rm -rf '{one.parent}'; exit 3" if there == "no folder" else "exit 3"
    shell = ("/bin/sh", "-c", _tunnel._KEPT, str(one), str(one.parent), "sh", "-c", ssh)
    assert subprocess.run(shell, check=False).returncode == 3
    os.close(number)
    assert not one.exists()
    assert (one.parent / ".owner").exists() == one.parent.exists() == (there not in ("nobody", "no folder"))


def test_a_tunnel_that_cannot_be_held_leaves_nothing(meeting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(psutil.Process().children())

    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(_tunnel, "_Use", full)
    with pytest.raises(OSError, match="Too many open files"), tunnel("h", ConnectionInfo()):
        pass
    assert not meeting.exists()
    assert set(psutil.Process().children()) <= before


def waiting(folder: Path) -> int:
    """How many wait for the folder's lock."""
    number = f":{folder.stat().st_ino} "
    return len([line for line in Path("/proc/locks").read_text().splitlines() if "->" in line and number in line])


def test_who_waits_while_a_tunnel_fails_to_open_hears_why_and_tries_no_more(
    meeting: Path, calls: Path, crowd: ThreadPoolExecutor
) -> None:
    calls.unlink()
    os.mkfifo(calls.parent / "go")
    (calls.parent / "ssh").write_text(
        f"#!/bin/sh\necho once >>{calls}\ncd {calls.parent}\n[ ! -p go ] || read word <go\nrm -f go\nexit 255\n"
    )
    said = [crowd.submit(refusal) for _ in range(4)]
    deadline = time.monotonic() + PATIENCE
    while not (meeting.exists() and waiting(meeting) == 3):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (calls.parent / "go").write_text("go\n")
    assert len({one.result(PATIENCE) for one in said}) == 1
    assert calls.read_text() == "once\n"
    assert not meeting.exists()
    (calls.parent / "ssh").write_text(f"#!/bin/sh\necho again >>{calls}\nexit 255\n")
    refusal()
    assert calls.read_text() == "once\nagain\n"
