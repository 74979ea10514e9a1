"""One holder a host, whoever asks, and no lease outlives its holder."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_hetgpu
from pytest_hetgpu.errors import NotHere, UsageError
from pytest_hetgpu.leases import FOLDER_VARIABLE, hold

PATIENCE = 60.0
HOLDER = """
import sys
from pytest_hetgpu.leases import hold
for line in sys.stdin:
    with hold(line.split()) as held:
        print("held", *held, flush=True)
        sys.stdin.readline()
    print("freed", flush=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "leases"))
    return tmp_path / "leases"


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(pytest_hetgpu.__file__).parent.parent)}


class Holder:
    """Another process, which holds the hosts it is asked to until it is asked to free them."""

    def __init__(self) -> None:
        pipe, env = subprocess.PIPE, environment()
        self.process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=pipe, stdout=pipe, text=True, env=env)

    def ask(self, line: str = "") -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def take(self, *hosts: str) -> None:
        self.ask(" ".join(hosts))
        assert self.answer() == " ".join(["held", *sorted(hosts)])


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    both = [Holder(), Holder()]
    yield both
    for holder in both:
        holder.process.kill()
        holder.process.communicate()


def test_hosts_are_held_in_sorted_order_each_once() -> None:
    with hold(["gpu2", "gpu1", "gpu2"]) as held:
        assert held == ("gpu1", "gpu2")


def test_a_host_in_use_is_not_here_and_its_holder_is_named(holders: list[Holder]) -> None:
    holders[0].take("gpu1")
    for timeout in (0.0, 0.1):
        with pytest.raises(NotHere, match=rf"host 'gpu1' is busy: process {holders[0].process.pid} holds it"):
            hold(["gpu1"], timeout=timeout).__enter__()


def test_other_hosts_are_free_meanwhile(holders: list[Holder]) -> None:
    holders[0].take("gpu1")
    with hold(["gpu2"], timeout=0):
        pass


def test_whoever_waits_gets_the_host_when_it_is_freed(holders: list[Holder]) -> None:
    first, second = holders
    first.take("gpu1")
    second.ask("gpu1")
    first.ask()
    assert first.answer() == "freed"
    assert second.answer() == "held gpu1"


def test_a_holder_that_is_killed_frees_its_hosts(holders: list[Holder]) -> None:
    holders[0].take("gpu1", "gpu2")
    with pytest.raises(NotHere):
        hold(["gpu2"], timeout=0).__enter__()
    holders[0].process.send_signal(signal.SIGKILL)
    with hold(["gpu2", "gpu1"], timeout=PATIENCE) as held:
        assert held == ("gpu1", "gpu2")


def test_hosts_taken_before_the_one_that_is_busy_are_given_back(holders: list[Holder]) -> None:
    holders[0].take("gpu2")
    with pytest.raises(NotHere, match="gpu2"):
        hold(["gpu1", "gpu2", "gpu3"], timeout=0.05).__enter__()
    holders[1].take("gpu1", "gpu3")


def test_a_claim_given_up_never_takes_the_host(holders: list[Holder]) -> None:
    first, second = holders
    first.take("gpu1")
    with pytest.raises(NotHere):
        hold(["gpu1"], timeout=0.05).__enter__()
    first.ask()
    assert first.answer() == "freed"
    for _ in range(2):
        second.take("gpu1")
        second.ask()
        assert second.answer() == "freed"


def test_jobs_that_name_the_same_hosts_in_any_order_do_not_wait_for_each_other(holders: list[Holder]) -> None:
    for _ in range(100):
        holders[0].ask("a b")
        holders[1].ask("b a")
        for holder in holders:
            holder.ask()
        assert [[holder.answer() for _ in range(2)] for holder in holders] == [["held a b", "freed"]] * 2


def test_an_exception_inside_frees_the_host_and_comes_out() -> None:
    with pytest.raises(ZeroDivisionError), hold(["gpu1"]):
        _ = 1 / 0
    with hold(["gpu1"], timeout=0):
        pass


def test_threads_of_one_process_exclude_each_other_too() -> None:
    busy: list[str] = []

    def ask() -> None:
        try:
            hold(["gpu1"], timeout=0).__enter__()
        except NotHere as error:
            busy.append(str(error))

    with hold(["gpu1"]):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(PATIENCE)
    assert len(busy) == 1
    assert f"this very process ({os.getpid()}) holds it" in busy[0]


def test_an_interrupt_while_waiting_gives_the_claim_up(holders: list[Holder]) -> None:
    holders[0].take("gpu1")
    interrupt = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1))

    def raise_interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, raise_interrupt)
    try:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            hold(["gpu1"]).__enter__()
    finally:
        signal.signal(signal.SIGUSR1, before)
    holders[0].ask()
    assert holders[0].answer() == "freed"
    holders[1].take("gpu1")


def test_a_forked_child_does_not_keep_a_host_that_was_freed() -> None:
    program = """if True:
        import os
        from pytest_hetgpu.leases import hold
        release, wait = os.pipe()
        with hold(["gpu1"]):
            if os.fork() == 0:
                os.close(wait)
                os._exit(len(os.read(release, 1)))
        with hold(["gpu1"], timeout=0):
            print("free")
    """
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=True
    )
    assert said.stdout == "free\n"


def test_names_that_are_no_file_names_do_not_collide(folder: Path) -> None:
    names = ["a/b", "a_b", "a:b", "..", ".", "", "user@[fe80::1%eth0]", "x" * 300, "x" * 301, "hôte", "a\nb"]
    with hold(names, timeout=0):
        files = list(folder.iterdir())
    assert len(files) == len(names)
    assert all(len(file.name) < 100 and file.name.isascii() for file in files)


def test_folder_and_files_are_private(folder: Path) -> None:
    with hold(["gpu1"]):
        (lock,) = folder.iterdir()
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, lock)]
    assert modes == [0o700, 0o600]


def test_a_lock_file_names_its_holder_only_while_it_is_held(folder: Path) -> None:
    with hold(["gpu1"]):
        (lock,) = folder.iterdir()
        assert lock.read_text() == f"{os.getpid()}\n"
    assert lock.read_text() == ""


def test_the_usual_place_is_a_folder_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with hold(["gpu1"]):
        assert len(list((tmp_path / f"hetgpu-{os.geteuid()}" / "leases").iterdir())) == 1


def refused(says: str) -> None:
    with pytest.raises(UsageError, match=f"{says}.*HETGPU_LEASES"):
        hold(["gpu1"], timeout=0).__enter__()


def test_a_folder_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    refused("it is a symbolic link")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_folder_that_others_may_write_to_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    refused(r"it can be written to by others \(mode 0777\)")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_elses_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)
    refused("it belongs to user id 12345")


def test_a_folder_that_cannot_be_made_is_refused(folder: Path) -> None:
    folder.write_text("a file")
    refused("File exists")


def test_a_lock_file_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    with hold(["gpu1"]):
        (lock,) = folder.iterdir()
    lock.unlink()
    lock.symlink_to(tmp_path / "target")
    with pytest.raises(UsageError, match="cannot be used as a lock file"):
        hold(["gpu1"]).__enter__()
    assert not (tmp_path / "target").exists()
