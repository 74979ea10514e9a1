"""One holder a host, whoever asks, and no lease outlives its holder."""

from __future__ import annotations

import ast
import getpass
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import pytest_hetgpu
from pytest_hetgpu.cluster.leases import host_lock
from pytest_hetgpu.cluster.leases.hold import FOLDER_VARIABLE, HeldLeases, describe_holder, wait_limit
from pytest_hetgpu.cluster.leases.hold import hold as hold_all
from pytest_hetgpu.errors import NotHere, UsageError
from pytest_hetgpu.extensions.runtimes.traits.policy import LeaseRequest

PATIENCE = 60.0
HOLDER = """
import sys
from pytest_hetgpu.cluster.leases.hold import hold
from pytest_hetgpu.extensions.runtimes.traits.policy import LeaseRequest
for line in sys.stdin:
    with hold([LeaseRequest(name, name) for name in line.split()]) as held:
        print("held", *sorted(held.words), flush=True)
        sys.stdin.readline()
    print("freed", flush=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "leases"))
    return tmp_path / "leases"


def hold(names: Iterable[str], timeout: float | None = None) -> AbstractContextManager[HeldLeases]:
    return hold_all([LeaseRequest(name, name) for name in names], timeout=timeout)


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


def test_hosts_are_held_each_once_in_an_order_that_is_the_same_for_all() -> None:
    with hold(["gpu2", "gpu1", "gpu2"]) as held:
        assert sorted(held.words) == ["gpu1", "gpu2"]
    with hold(["gpu1", "gpu2"]) as again:
        assert again.words == held.words


def test_a_host_in_use_is_not_here_and_its_holder_is_named(holders: list[Holder]) -> None:
    holders[0].take("gpu1")
    for timeout in (0.0, 0.1):
        with pytest.raises(NotHere, match=rf"host 'gpu1' is busy: .* since .*, process {holders[0].process.pid} "):
            hold(["gpu1"], timeout=timeout).__enter__()


def test_a_wait_that_fails_is_told_to_be_over(holders: list[Holder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_hetgpu.cluster.leases.hold.NOTICE", 0.01)
    holders[0].take("gpu1")
    reports: list[str] = []
    with pytest.raises(NotHere, match="busy"):
        hold_all([LeaseRequest("gpu1", "gpu1")], timeout=0.5, report_wait=reports.append).__enter__()
    assert reports[0].startswith("waits for host gpu1: ")
    assert reports[1:] == [""]
    with pytest.raises(NotHere, match="busy"):
        hold_all([LeaseRequest("gpu1", "gpu1")], timeout=0, report_wait=reports.append).__enter__()
    assert len(reports) == 2


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
        assert sorted(held.words) == ["gpu1", "gpu2"]


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
    assert "this very process holds it" in busy[0]


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
        from pytest_hetgpu.cluster.leases.hold import hold
        from pytest_hetgpu.extensions.runtimes.traits.policy import LeaseRequest
        release, wait = os.pipe()
        with hold([LeaseRequest("gpu1", "gpu1")]):
            if os.fork() == 0:
                os.close(wait)
                os._exit(len(os.read(release, 1)))
        with hold([LeaseRequest("gpu1", "gpu1")], timeout=0):
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
    assert len(files) == 2 * len(names)  # a lock and the line of those who wait for it
    assert all(len(file.name) < 110 and file.name.isascii() for file in files)


def lock_of(folder: Path) -> Path:
    (lock,) = folder.glob("*.lock")
    return lock


def test_a_folder_that_we_make_is_private_and_its_files_are_for_whoever_gets_in(folder: Path) -> None:
    with hold(["gpu1"]):
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, lock_of(folder))]
    assert modes == [0o700, 0o666]


def test_a_lock_file_names_its_holder_only_while_it_is_held(folder: Path) -> None:
    with hold_all([LeaseRequest("gpu1", "gpu1")], cell="mixed-ob1-allreduce"):
        said = json.loads(lock_of(folder).read_text())
        assert (said["pid"], said["cell"], said["machine"]) == (os.getpid(), "mixed-ob1-allreduce", os.uname().nodename)
    assert lock_of(folder).read_text() == ""


def test_what_a_lock_file_says_does_not_hide_who_holds_it(folder: Path, holders: list[Holder]) -> None:
    holders[0].take("gpu1")
    lock_of(folder).write_text(json.dumps({"pid": 1, "user": "init", "cell": "\x1b[2J"}))
    with pytest.raises(NotHere, match=f"{getpass.getuser()} holds it, process {holders[0].process.pid} "):
        hold(["gpu1"], timeout=0).__enter__()


def test_who_holds_a_host_is_told_without_what_writes_over_the_terminal() -> None:
    who = {
        "user": "ada",
        "machine": "node7",
        "pid": 9,
        "launcher": 4711,
        "cell": "c\x1b[1m",
        "run": "r",
        "since": "12:00",
    }
    assert describe_holder(who) == "ada@node7 holds it for cell c[1m of run r since 12:00, process 4711"
    assert describe_holder({}) == "another process holds it"


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", "1e18"])
def test_patience_that_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="HETGPU_LEASE_TIMEOUT"):
        wait_limit({"HETGPU_LEASE_TIMEOUT": text})


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
    refused("it is no folder")


def test_a_folder_in_one_that_is_not_there_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder / "below"))
    refused("No such file or directory")


def test_a_lock_file_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    with hold(["gpu1"]):
        lock = lock_of(folder)
    for link in (lock.symlink_to, lock.hardlink_to):
        lock.unlink()
        target = tmp_path / link.__name__
        target.write_text("precious")
        link(target)
        with pytest.raises(NotHere, match=r"cannot be used as a lock file|no plain file"):
            hold(["gpu1"]).__enter__()
        assert target.read_text() == "precious"


def test_what_is_sent_to_other_hosts_runs_on_the_oldest_python_that_a_node_may_have() -> None:
    text = Path(host_lock.__file__).read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 6))
    assert "pytest_hetgpu" not in text
