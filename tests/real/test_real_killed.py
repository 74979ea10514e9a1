"""Whole runs that are killed in mid-cell: what they started is gone soon after, and nothing of anybody else's."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_hetgpu.cluster.cleanup.owner import MARK
from tests.extensions.runtimes.conftest import loopback, loopback_sshd, openssh
from tests.extensions.runtimes.loopback import Loopback
from tests.real.nodes_here import BUILD, HEAD, left
from tests.real.tls_engine import behind_tls

__all__ = ["loopback", "loopback_sshd", "openssh"]

pytestmark = pytest.mark.real

PATIENCE = 90.0
LOCAL = "name: nodes\nhardware:\n  here: {}\n"
HANGING = """\
axes:
  placement: {{pair: [{node}, {node}]}}
  transport: {{ob1: {{family: ob1, btl: [tcp, self]}}}}
  workload: {{{cells}}}
"""
HOSTS = "hardware: {one: [localhost], here: [localhost]}\n"
HETGPU = (sys.executable, "-m", "pytest_hetgpu.cli")


class Sessions:
    """Runs of one user, side by side."""

    def __init__(self, folder: Path, ending: contextlib.ExitStack) -> None:
        self.folder = folder
        self.ledgers = folder / "ledgers"
        self.env = {
            **os.environ,
            "HETGPU_LEDGERS": str(self.ledgers),
            "HETGPU_LEASES": str(folder / "leases"),
        }
        self._ending = ending

    def start(self, name: str, text: str, *options: str, hosts: str = HOSTS + BUILD) -> Session:
        """One in a folder of its own."""
        place = self.folder / name
        place.mkdir()
        (place / "m.yaml").write_text(text)
        (place / "hosts.yaml").write_text(hosts)
        argv: tuple[str, ...] = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--hetgpu-matrix", "m.yaml")
        argv += ("--hetgpu-inventory", "hosts.yaml", "--hetgpu-wire", "off", *options)
        process = subprocess.Popen(
            argv, cwd=place, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._ending.enter_context(process)
        self._ending.callback(process.kill)
        return Session(place, process)

    def clean(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (*HETGPU, "clean", *options), env=self.env, capture_output=True, text=True, check=False, timeout=PATIENCE
        )


class Session:
    """A run of pytest's."""

    def __init__(self, place: Path, process: subprocess.Popen[str]) -> None:
        self.place = place
        self.process = process

    @property
    def run(self) -> str:
        return (self.place / "reports" / "latest").resolve().name

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = (
            line for path in self.place.glob("reports/latest/journal/*.jsonl") for line in path.read_text().splitlines()
        )
        return [event for line in lines if (event := json.loads(line))["event"] == kind]

    def in_flight(self, cells: int = 1) -> None:
        """Until so many cells have started."""
        until(lambda: len(self.events("started")) >= cells or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.stdout and self.process.stdout.read()

    def killed(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    with contextlib.ExitStack() as ending:
        yield Sessions(tmp_path, ending)


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "nothing came of it"
        time.sleep(0.05)


def guardian(session: Session) -> psutil.Process:
    children = psutil.Process(session.process.pid).children()
    (found,) = (child for child in children if "watchdog.py" in " ".join(child.cmdline()))
    return found


def processes(run: str) -> list[str]:
    """Processes of this machine, in containers or not, that carry a run's label."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            label = process.environ().get("HETGPU_OWNER", "") + " ".join(process.cmdline())
            if f"{MARK}/{run}/" in label and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.name()} ({process.pid})")
    return found


def folders(run: str) -> list[Path]:
    return [path for path in Path("/tmp").glob("hetgpu-*/.owner") if f"/{run}/" in path.read_text()]


def gone(run: str) -> bool:
    return not (processes(run) or folders(run) or left(run))


def matrix(node: str, head: str = HEAD, cells: str = "hang: {kind: fault, fault: hang, timeout: 120}") -> str:
    return head + HANGING.format(node=node, cells=cells)


def test_nothing_is_left_of_a_killed_run_with_containers(engine: None, sessions: Sessions) -> None:
    session = sessions.start("one", matrix("one"))
    session.in_flight()
    assert len(left(session.run)) == 3  # two containers and their network
    assert processes(session.run)
    session.killed()
    until(lambda: gone(session.run))
    until(lambda: not list(sessions.ledgers.iterdir()))


def test_clean_removes_what_is_left_where_the_guardian_was_killed_and_nothing_of_a_live_run(
    engine: None, sessions: Sessions
) -> None:
    alive, dead = sessions.start("alive", matrix("one")), None
    alive.in_flight()
    before = left(alive.run)
    with contextlib.ExitStack() as ending:
        other = Sessions(sessions.folder / "other", ending)
        other.folder.mkdir()
        dead = other.start("dead", matrix("one"))
        dead.in_flight()
        guardian(dead).kill()
        dead.killed()
        shown = other.clean("--run", dead.run, "--run", alive.run)
        assert shown.returncode == 1, shown.stderr
        assert f"hetgpu-{dead.run}-nodes-pair" in shown.stdout
        assert "network" in shown.stdout
        assert f"left alone: run {alive.run} (" in shown.stdout
        removed = other.clean("--yes", "--run", dead.run, "--run", alive.run)
        assert removed.returncode == 0, removed.stderr
        assert "removed " in removed.stdout
        until(lambda: gone(dead.run))
        assert not list(other.ledgers.iterdir())
    assert left(alive.run) == before
    assert alive.process.poll() is None
    assert alive.events("judged") == []


def test_a_guardian_waits_for_an_engine_that_is_away_for_a_while(engine: None, sessions: Sessions) -> None:
    with tempfile.TemporaryDirectory() as folder:  # a socket's path has at most 107 bytes
        socket = Path(folder) / "engine.sock"
        socket.symlink_to("/var/run/docker.sock")
        sessions.env["DOCKER_HOST"] = f"unix://{socket}"
        session = sessions.start("one", matrix("one"))
        session.in_flight()
        socket.unlink()
        session.killed()
        until(lambda: [log for log in sessions.ledgers.glob("*.log") if "engine.sock" in log.read_text()])
        assert len(left(session.run)) >= 1  # nobody else can have removed the network
        socket.symlink_to("/var/run/docker.sock")
        until(lambda: gone(session.run))
        until(lambda: not list(sessions.ledgers.iterdir()))


def test_ranks_of_this_machine_do_not_outlive_a_killed_run(stack_prefix: Path, sessions: Sessions) -> None:
    session = sessions.start("one", matrix("here", LOCAL))
    session.in_flight()
    until(lambda: len(processes(session.run)) > 2)
    session.killed()
    until(lambda: not processes(session.run))


@pytest.mark.parametrize("victim", ["controller", "worker"])
def test_whichever_process_of_a_distributed_run_is_killed_its_ranks_go(
    stack_prefix: Path, sessions: Sessions, victim: str
) -> None:
    session = sessions.start("one", matrix("here", LOCAL), "-n", "1")
    session.in_flight()
    until(lambda: len(processes(session.run)) > 2)
    if victim == "controller":
        session.killed()
    else:
        os.kill(session.events("started")[0]["pid"], signal.SIGKILL)
    ranks = set(processes(session.run))
    until(lambda: ranks.isdisjoint(processes(session.run)))
    session.killed()
    until(lambda: not processes(session.run))


def test_runs_that_share_a_machine_never_overlap_and_go_on_when_one_is_killed(
    stack_prefix: Path, sessions: Sessions
) -> None:
    cells = ", ".join(f"c{number}: {{kind: allreduce, sizes: [8]}}" for number in range(4))
    both = [sessions.start(name, matrix("here", LOCAL, cells)) for name in ("a", "b")]
    for one in both:
        assert one.process.wait(PATIENCE) == 0, one.process.stdout and one.process.stdout.read()
    results = [event["result"] for one in both for event in one.events("finished")]
    times = sorted((result["started"], result["started"] + result["seconds"]) for result in results)
    assert len(times) == 8
    assert all(end <= start for (_, end), (start, _) in pairwise(times))

    holder = sessions.start("holder", matrix("here", LOCAL))
    holder.in_flight()
    waiting = sessions.start("waiting", matrix("here", LOCAL, cells))
    until((waiting.place / "reports" / "latest").exists)
    holder.killed()
    assert waiting.process.wait(PATIENCE) == 0


def test_a_cell_whose_host_stays_busy_is_skipped_and_says_who_holds_it(stack_prefix: Path, sessions: Sessions) -> None:
    holder = sessions.start("holder", matrix("here", LOCAL))
    holder.in_flight()
    sessions.env["HETGPU_LEASE_TIMEOUT"] = "0.5"
    waiting = sessions.start("waiting", matrix("here", LOCAL), "-rs")
    out, _ = waiting.process.communicate(timeout=PATIENCE)
    told = f"host 'localhost' is busy: .* holds it for cell pair-ob1-hang of run {holder.run} since .*"
    assert waiting.process.returncode == 10, out
    (skipped,) = waiting.events("judged") or waiting.events("skipped")
    assert re.search(told, json.dumps(skipped)), skipped


@pytest.fixture
def afar(loopback: Loopback, sessions: Sessions) -> str:
    """An inventory: this machine's engine, and this machine itself, both behind ssh."""
    sessions.env["PATH"] = os.environ["PATH"]
    reach = loopback.reach
    at = f"address: 127.0.0.1, user: {reach.user}, port: {reach.port}, key: {reach.key}"
    engine = f"engine: 'ssh://{reach.user}@127.0.0.1:{reach.port}'"
    return f"hardware:\n  one: [{{{at}, {engine}}}]\n  there: [{{{at}}}, {{{at}}}]\n{BUILD}"


def test_nothing_is_left_on_an_engine_behind_ssh(engine: None, sessions: Sessions, afar: str) -> None:
    session = sessions.start("one", matrix("one"), hosts=afar)
    session.in_flight()
    assert len(left(session.run)) == 3
    session.killed()
    until(lambda: gone(session.run))
    until(lambda: not list(sessions.ledgers.iterdir()))


def test_nothing_is_left_on_an_engine_behind_tls_whoever_removes_it(
    engine: None, sessions: Sessions, tmp_path: Path
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # the engine's library would believe these and nobody else
        sessions.env.pop(name, None)
    with behind_tls(tmp_path) as environ:
        plain, sessions.env = sessions.env, {**sessions.env, **environ}
        watched = sessions.start("watched", matrix("one"))
        watched.in_flight()
        assert len(left(watched.run)) == 3
        watched.killed()
        until(lambda: gone(watched.run))
        alone = sessions.start("alone", matrix("one"))
        alone.in_flight()
        assert len(left(alone.run)) == 3
        guardian(alone).kill()
        alone.killed()
        sessions.env = {**plain, "DOCKER_HOST": "unix:///nowhere.sock"}  # only the ledger knows the way
        removed = sessions.clean("--yes", "--run", alone.run)
        assert (removed.returncode, "the Docker engine at 127.0.0.1:" in removed.stdout) == (0, True), removed
        assert gone(alone.run)


def test_nothing_is_left_on_a_host_whose_agents_were_killed_too(
    stack_prefix: Path, sessions: Sessions, afar: str
) -> None:
    head = f"name: nodes\nhardware:\n  there: {{runtime: ssh, mpi: {{prefix: {stack_prefix}}}}}\n"
    session = sessions.start("one", matrix("there", head), hosts=afar)
    session.in_flight()
    until(lambda: len(processes(session.run)) > 4)
    assert len(folders(session.run)) == 2
    # Agents that are killed cannot stop their sshd, nor remove their folders.
    session.process.send_signal(signal.SIGSTOP)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words[:1] == ["python3"] and any(f"{MARK}/{session.run}/" in word for word in words[-1:]):
                process.kill()
    assert folders(session.run)
    session.killed()
    until(lambda: gone(session.run))
    until(lambda: not list(sessions.ledgers.iterdir()))
