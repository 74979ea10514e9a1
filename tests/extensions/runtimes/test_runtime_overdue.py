"""A command whose time is over is looked at before it is stopped, here and on a node that an agent holds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from pytest_hetgpu.cluster import stack_dump
from pytest_hetgpu.extensions.runtimes.agent import look
from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.base import Runtime, TimeoutInfo
from pytest_hetgpu.extensions.runtimes.local import Local
from pytest_hetgpu.extensions.runtimes.process.kernel import custody
from pytest_hetgpu.model.job import Command
from tests.extensions.runtimes.member_nodes import member, output

__all__ = ["member", "output"]

RANK = "import time\ndef wait_for_ever():\n    time.sleep(600)\nwait_for_ever()"
PROGRAM = """if True:
    import os, sys, time
    def wait_for_ever():
        time.sleep(600)
    for rank in range(2):
        if os.fork() == 0:
            os.environ["OMPI_COMM_WORLD_RANK"] = str(rank)
            os.execv(sys.executable, [sys.executable, "-S", "-c", sys.argv[1]])
    wait_for_ever()
"""
ARGV = (sys.executable, "-S", "-c", PROGRAM, RANK)


@pytest.fixture(params=["here", "agent"])
def node(request: pytest.FixtureRequest) -> Runtime:
    if request.param == "here":
        return Local()
    found = request.getfixturevalue("member")
    assert isinstance(found, AgentNode)
    return found


@pytest.fixture
def spied(lacking: Callable[[str, str], None]) -> None:
    if look.py_spy() is None:
        lacking("py-spy", "py-spy is not installed")


def test_ranks_are_seen_before_they_are_stopped(node: Runtime, output: Path, spied: None) -> None:
    overdue = partial(stack_dump.record, others={}, output=output, ranks=2)
    result = node.run(Command(ARGV), output=output, timeout=1.5, overdue=overdue)
    assert result.timed_out
    assert result.seconds < 2.5
    *_, last = output.read_text().splitlines()
    assert last.endswith("nothing moved: ranks 0, 1 are in time.sleep (<string>:3)"), last
    assert not [words for words in commands() if "wait_for_ever" in words]


def commands() -> Iterator[str]:
    """The command lines of what runs below this process; what has ended meanwhile, or is a zombie, has none."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            yield " ".join(child.cmdline())


@pytest.mark.parametrize(("given", "waited"), [(1.0, 20.0), (60.0, 2.0)], ids=["it gives up", "it is killed"])
def test_what_a_look_has_started_does_not_outlive_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: float, waited: float
) -> None:
    tool, started = tmp_path / "py-spy", tmp_path / "started"
    tool.write_text(f"#!/bin/sh\ntouch {started}\nsleep 600 &\nwait\n")
    tool.chmod(0o755)
    before = set(psutil.Process().children(recursive=True))
    env = {**os.environ, "OMPI_COMM_WORLD_RANK": "0"}
    with custody.held(), subprocess.Popen((sys.executable, "-S", "-c", RANK), env=env) as rank:
        try:
            request = {"hellos": [], "gap": 0.1, "pids": [rank.pid], "py_spy": str(tool), "alone": True}
            look._answer(json.dumps({**request, "seconds": given}).encode(), waited)
            # Zombies count: nobody would ever take them in.
            left = set(psutil.Process().children(recursive=True)) - before
        finally:
            rank.kill()
    assert started.exists()
    assert {process.pid for process in left} == {rank.pid}


def test_py_spy_is_sent_where_it_is_needed(
    member: AgentNode, output: Path, spied: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    put = member.link.call

    def call(op: str, *args: object, **fields: object) -> object:
        sent.append(op)
        return put(op, *args, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(member.link, "call", call)
    paths = [path for path in os.environ["PATH"].split(os.pathsep) if not (Path(path) / "py-spy").exists()]
    env = {"PATH": os.pathsep.join(paths)}
    overdue = partial(stack_dump.record, others={}, output=output, ranks=2)
    member.run(Command(ARGV, env), output=output, timeout=1.5, overdue=overdue)
    assert "are in time.sleep" in output.read_text()
    assert ("put" in sent) == (shutil.which("py-spy") is None)


def test_a_command_that_ends_in_time_is_not_looked_at(node: Runtime, output: Path) -> None:
    def never(_: TimeoutInfo) -> None:
        raise AssertionError

    assert node.run(Command(("/bin/true",)), output=output, timeout=60.0, overdue=never).returncode == 0


def test_an_interruption_of_the_look_stops_the_command(node: Runtime, output: Path) -> None:
    def cut(_: TimeoutInfo) -> None:
        raise KeyboardInterrupt("SIGTERM")

    result = node.run(
        Command((sys.executable, "-S", "-c", "import time; time.sleep(600)")), output=output, timeout=0.3, overdue=cut
    )
    assert (result.timed_out, result.interrupted) == (False, "SIGTERM")


def test_an_agent_that_cannot_look_is_not_lost(member: AgentNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "program", lambda: "import time; time.sleep(100)")
    monkeypatch.setattr(look, "MARGIN", 0.1)
    assert member.stacks({"hellos": [], "gap": 0.1}, 0.3) == b""
    monkeypatch.setattr(look, "program", lambda: "print('rubbish')")
    assert look.unpacked(member.stacks({"hellos": [], "gap": 0.1}, 2.0)) == {}
    assert member.lost() is None


def test_a_shell_around_a_rank_is_not_the_rank(output: Path, spied: None) -> None:
    told = f"OMPI_COMM_WORLD_RANK=0 sh -c '{sys.executable} -S -c \"import time; time.sleep(600)\"; true'"
    overdue = partial(stack_dump.record, others={}, output=output, ranks=1)
    Local().run(Command(("/bin/sh", "-c", told)), output=output, timeout=1.0, overdue=overdue)
    assert "rank 0 is in time.sleep" in output.read_text()


def test_nothing_of_the_environment_is_kept(output: Path) -> None:
    env = {"OMPI_COMM_WORLD_RANK": "0", "MY_TOKEN": "very-secret-value"}
    overdue = partial(stack_dump.record, others={}, output=output, ranks=1)
    Local().run(
        Command((sys.executable, "-S", "-c", "import time; time.sleep(600)"), env),
        output=output,
        timeout=1.0,
        overdue=overdue,
    )
    kept = output.with_name("stacks.json").read_text()
    assert '"rank": 0' in kept
    assert "very-secret-value" not in kept + output.read_text()
