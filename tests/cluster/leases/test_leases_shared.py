"""One holder a machine: whoever's process it is, and whichever way leads to the machine."""

from __future__ import annotations

import os
import pwd
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

import pytest_hetgpu
from pytest_hetgpu.cluster.leases.hold import FOLDER_VARIABLE, close_connections, hold, lease_requests
from pytest_hetgpu.cluster.leases.host_lock import HOST, HostLock, common_folder
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.runtimes.traits.policy import LeaseRequest
from pytest_hetgpu.model.job import ConnectionInfo, Hardware, Node
from tests.extensions.runtimes.conftest import loopback, loopback_sshd, openssh
from tests.extensions.runtimes.loopback import Loopback

__all__ = ["loopback", "loopback_sshd", "openssh"]

PATIENCE = 120.0
ROOT = Path(pytest_hetgpu.__file__).parent.parent

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(autouse=True)
def everybodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    if not common_folder():
        pytest.skip("no folder here that all users share")


@pytest.fixture
def name() -> Iterator[str]:
    made = f"test-{secrets.token_hex(6)}"
    yield made
    for path in Path(common_folder()).glob(f"hetgpu-{made}*"):
        path.unlink()


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as ending:

        def started(*arguments: str, user: str = "-") -> subprocess.Popen[str]:
            env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
            argv = [sys.executable, str(Path(__file__).with_name("holding.py")), user, *arguments]
            pipe = subprocess.PIPE
            one = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, env=env, cwd="/")
            ending.enter_context(one)
            ending.callback(one.kill)
            return one

        yield started


def said(one: subprocess.Popen[str]) -> str:
    assert one.stdout
    return one.stdout.readline()


def freed(one: subprocess.Popen[str]) -> None:
    assert one.stdin
    one.stdin.close()


@pytest.fixture
def another() -> str:
    """The number of another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    return str(pwd.getpwnam("nobody").pw_uid)


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_users_of_a_machine_exclude_each_other(name: str, start: Start, another: str, first: str) -> None:
    if first == "ours":  # whose the lock file then is
        with hold([LeaseRequest(name, "gpu1")]):
            pass
    theirs = start(name, user=another)
    assert said(theirs) == "held\n"
    with pytest.raises(NotHere, match=f"host 'gpu1' is busy: nobody.* process {theirs.pid}"):
        hold([LeaseRequest(name, "gpu1")], timeout=0.2).__enter__()
    freed(theirs)
    with hold([LeaseRequest(name, "gpu1")], timeout=PATIENCE):
        waiting = start(name, user=another)
    assert said(waiting) == "held\n"


def test_another_users_holder_that_is_killed_frees_the_host(name: str, start: Start, another: str) -> None:
    theirs = start(name, user=another)
    assert said(theirs) == "held\n"
    theirs.send_signal(signal.SIGKILL)
    with hold([LeaseRequest(name, "gpu1")], timeout=PATIENCE):
        pass


def test_a_hostile_users_lock_is_named_when_patience_is_over(name: str, start: Start, another: str) -> None:
    hostile = start(HostLock(common_folder(), name, {}).path + ".lock", user=another)
    assert said(hostile) == "held\n"
    with pytest.raises(NotHere, match=f"busy: nobody holds it, process {hostile.pid} "):
        hold([LeaseRequest(name, "gpu1")], timeout=0.2).__enter__()


@pytest.fixture
def afar(loopback: Loopback) -> Iterator[LeaseRequest]:
    """The machine we are on, reached by ssh."""
    yield LeaseRequest("127.0.0.1", "there", loopback.reach)
    close_connections()


def arguments(afar: LeaseRequest) -> tuple[str, ...]:
    assert afar.reach
    return afar.name, str(afar.reach.port), str(afar.reach.user), str(afar.reach.key)


def test_a_machine_is_held_once_however_many_ways_lead_to_it(afar: LeaseRequest) -> None:
    with hold([afar, LeaseRequest(HOST, "here")], timeout=PATIENCE) as held:
        assert (held.words, held.here) == (("here",), {})


def test_whoever_holds_a_machine_by_ssh_keeps_its_own_processes_out(afar: LeaseRequest, start: Start) -> None:
    theirs = start(*arguments(afar))
    assert said(theirs) == "held\n"
    with pytest.raises(NotHere, match=f"'here' is busy: .* for cell theirs since .* process {theirs.pid} "):
        hold([LeaseRequest(HOST, "here")], timeout=0.2).__enter__()
    theirs.send_signal(signal.SIGKILL)
    with hold([LeaseRequest(HOST, "here")], timeout=PATIENCE):
        pass


def test_whoever_waits_by_ssh_is_told_who_holds_and_gets_the_machine_when_it_is_free(
    afar: LeaseRequest, start: Start
) -> None:
    with hold([LeaseRequest(HOST, "here")], cell="mine", timeout=PATIENCE):
        with pytest.raises(NotHere, match="'there' is busy: this very process holds it for cell mine"):
            hold([afar], timeout=0.2).__enter__()
        waiting = start(*arguments(afar))
    assert said(waiting) == "held\n"
    freed(waiting)
    with hold([afar], timeout=PATIENCE) as held:
        assert (held.words, held.here) == (("there",), {})


def test_whoever_waits_by_ssh_can_say_so_meanwhile_and_still_gets_the_machine(
    afar: LeaseRequest, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_hetgpu.cluster.leases.hold.NOTICE", 0.1)
    theirs = start(HOST)
    assert said(theirs) == "held\n"
    reports: list[str] = []

    def waits(why: str) -> None:
        reports.append(why)
        if why:
            freed(theirs)

    with hold([afar], timeout=PATIENCE, report_wait=waits) as held:
        assert held.lost == ()
    assert reports[0].startswith("waits for host there: ")
    assert f"process {theirs.pid}" in reports[0]
    assert reports[1:] == [""]


def test_a_lease_whose_way_there_breaks_is_lost(afar: LeaseRequest) -> None:
    with hold([afar], timeout=PATIENCE) as held:
        assert not held.lost
        ways = [child for child in psutil.Process().children(recursive=True) if child.name() == "ssh"]
        for way in ways:
            way.kill()
        psutil.wait_procs(ways, PATIENCE)
        for thread in threading.enumerate():
            if thread.name == "lease of 127.0.0.1":
                thread.join(PATIENCE)
        assert list(held.lost) == ["there"]


def test_a_host_that_cannot_hold_its_own_lease_is_held_here_and_that_is_said(name: str) -> None:
    closed = LeaseRequest("127.0.0.1", "closed", ConnectionInfo("", "nobody-there", 2, None))
    unreached = LeaseRequest(name, "behind", alone="no way leads to it")
    for _ in range(2):  # the second time it is not asked again
        with hold([closed, unreached, LeaseRequest(HOST, "here")], timeout=PATIENCE) as held:
            assert sorted(held.words) == ["behind", "closed", "here"]
            assert sorted(held.here) == ["behind", "closed"]
            assert held.here["closed"].startswith("nothing listens on 127.0.0.1, port 2: ")
            assert held.here["behind"] == "no way leads to it"


def leases_of(runtime: str, host: str, reach: ConnectionInfo) -> tuple[LeaseRequest, ...]:
    return lease_requests([Node(0, Hardware("x", runtime=runtime), host, 1, "node0", reach=reach)])


def test_a_machine_has_its_own_name_however_it_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    user = ConnectionInfo("", "ada", 22, "/key")
    here = LeaseRequest(HOST, "localhost")
    assert (
        leases_of("local", "localhost", ConnectionInfo())
        == leases_of("docker", "localhost", ConnectionInfo())
        == (here,)
    )
    assert leases_of("ssh", "gpu1", user) == (LeaseRequest("gpu1", "gpu1", user),)
    engine = ConnectionInfo("ssh://ada@gpu1:22", None, None, "/key")
    assert leases_of("docker", "gpu1", engine) == (LeaseRequest("gpu1", "gpu1", user),)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    (behind_tls,) = leases_of("docker", "gpu1", ConnectionInfo("tcp://gpu1:2376"))
    assert behind_tls.reach is None
    assert behind_tls.name != HOST


@pytest.mark.parametrize("runtime", ["slurm", "kubernetes"])
def test_what_a_scheduler_gives_needs_no_lease_here(runtime: str) -> None:
    given, ours = (
        Node(index, Hardware("x", runtime=kind), "localhost", 1, f"node{index}")
        for index, kind in enumerate((runtime, "local"))
    )
    assert lease_requests([given]) == ()
    assert lease_requests([given, ours]) == (LeaseRequest(HOST, "localhost"),)
    with hold(lease_requests([given]), timeout=0) as held:
        assert held.words == held.lost == ()
