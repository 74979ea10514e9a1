"""What a keeper makes of answers that come late, and of no way there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from pytest_hetgpu.cluster.leases import remote_lock
from pytest_hetgpu.cluster.leases.remote_lock import RemoteLock, RemoteLocks
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.extensions.runtimes.process.ledger import tracker
from pytest_hetgpu.extensions.runtimes.ssh import Ssh
from pytest_hetgpu.model.job import ConnectionInfo, Hardware, Node

PATIENCE = 60.0
SLOW = """
import sys
sys.stdin.buffer.read(int(sys.argv[1]))
print('{"hello": "lock"}', flush=True)
asked = 0
for line in sys.stdin:
    asked += line == "who\\n"
    if asked == 2:
        break
print('{"holder": {"pid": 1}}', '{"holder": {"pid": 1}}', '{"held": true}', sep="\\n", flush=True)
sys.stdin.read()
"""
"""A host that tells who holds its lease only when it is asked again, and then grants it."""


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteLock]:
    def started_here(host: str, reach: ConnectionInfo, command: tuple[str, ...]) -> tuple[str, ...]:
        return sys.executable, "-c", SLOW, command[4]

    monkeypatch.setattr(remote_lock, "ssh_command", started_here)
    with closing(RemoteLock("gpu1", ConnectionInfo())) as made:
        monkeypatch.setattr(remote_lock, "_ANSWER_TIMEOUT", 0.01)
        yield made


def test_a_late_answer_to_another_question_ends_no_wait(slow: RemoteLock) -> None:
    slow.ask({})
    assert slow.holder() == {}
    slow.holder()
    assert slow.granted(PATIENCE)


@pytest.mark.parametrize(
    ("shell", "why"),
    [
        ("echo 'sh: 1: python3: not found' >&2; exit 127", "there is no python3 on gpu1 for the user who logs in: "),
        ('echo \'{"refused": "no folder there"}\'; exec cat', "no folder there"),
        ("cat >&2; :", "no answer in 1 s"),
    ],
)
def test_why_a_host_can_have_no_keeper_is_kept_with_it(monkeypatch: pytest.MonkeyPatch, shell: str, why: str) -> None:
    asked: list[str] = []

    def started_here(host: str, reach: ConnectionInfo, command: tuple[str, ...]) -> tuple[str, ...]:
        asked.append(host)
        return "/bin/sh", "-c", shell

    monkeypatch.setattr(remote_lock, "ssh_command", started_here)
    monkeypatch.setattr(remote_lock, "_ANSWER_TIMEOUT", 1.0)
    gpu1 = ("gpu1", ConnectionInfo())
    locks = RemoteLocks()
    for _ in range(2):
        found = locks.of([gpu1])[gpu1]
        assert isinstance(found, str)
        assert found.startswith(why)
    assert asked == ["gpu1"]
    locks.close()


def test_a_host_that_nothing_leads_to_is_noted_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Mock()
    monkeypatch.setattr(tracker(), "host", noted, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotHere, match="there is no ssh in PATH"):
        RemoteLock("gpu1", ConnectionInfo())
    with pytest.raises(NotHere, match="there is no ssh in PATH"):
        Ssh.open(Node(0, Hardware("there"), "gpu1", 1, "n0"), Deployment("test", "run", "me"))
    noted.assert_not_called()
