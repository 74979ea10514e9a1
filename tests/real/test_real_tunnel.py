"""Workers whose nodes are on one engine behind ssh: one tunnel for all of them, opened again when it breaks."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.extensions.runtimes.conftest import loopback, loopback_sshd, openssh
from tests.extensions.runtimes.loopback import Loopback
from tests.real.nodes_here import BUILD, properties

__all__ = ["loopback", "loopback_sshd", "openssh"]

pytestmark = [pytest.mark.real, pytest.mark.beside]

Nodes = Callable[..., pytest.RunResult]
AXES = """\
axes:
  placement: {left: [one, one], right: [one, one]}
  transport: {ob1: {}}
  workload: {barrier: {}}
  again: {a: {}, b: {}, c: {}}
"""
KILLING = """\
import os, signal
from pathlib import Path

def test_cell(scenario, cluster, run):
    if scenario.id == "left-ob1-barrier-b":
        {kills}
    run()
"""


class Way:
    """An ssh that writes down how it is called, and a place for what is temporary."""

    def __init__(self, loopback: Loopback, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.calls.touch()
        self.hosts = (
            "hardware:\n  one:\n    - {address: localhost, engine: 'ssh://"
            f"{loopback.reach.user}@127.0.0.1:{loopback.reach.port}', key: {loopback.reach.key}}}\n"
        )

    def tunnels(self) -> list[int]:
        """Every ssh that was started for a tunnel, by its process."""
        calls = [line.split() for line in self.calls.read_text().splitlines() if " -L " in line]
        return [int(pid) for pid, *_ in calls]

    @property
    def own(self) -> int:
        """How many of them were the run's, not those of a guardian that sees to what was killed."""
        folders = re.findall(r" -L \S*/(hetgpu-\w+)/", self.calls.read_text())
        return folders.count(folders[0])

    @property
    def left(self) -> list[str]:
        """Tunnels that still run, and what is left of their folders."""
        gone = psutil.wait_procs([psutil.Process(pid) for pid in self.tunnels() if psutil.pid_exists(pid)], 10)[1]
        return [*map(str, gone), *(path.name for path in self.folder.glob("hetgpu-*"))]


@pytest.fixture
def way(loopback: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Way]:
    folder = Path(tempfile.mkdtemp())  # a short name: a socket's path has an end
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("HETGPU_LEDGERS", str(tmp_path / "ledgers"))
    made = Way(loopback, folder)
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(ssh.read_text().replace("exec", f'echo "$$ $*" >>{made.calls}\nexec'))
    yield made
    shutil.rmtree(folder)


@pytest.fixture
def ran(nodes: Nodes, way: Way, pytester: pytest.Pytester) -> Callable[..., dict[str, dict[str, str]]]:
    """Runs two workers, each with a placement of its own; its cells' properties."""
    pytester.path.joinpath("ssh.yaml").write_text(way.hosts + BUILD)

    def run(kills: str, *options: str) -> dict[str, dict[str, str]]:
        pytester.path.joinpath("test_it.py").write_text(KILLING.replace("{kills}", kills))
        nodes(AXES, "test_it.py", "-n2", "--dist=worksteal", "--hetgpu-inventory", "ssh.yaml", *options)
        return properties(pytester.path / "reports")

    return run


def writers(reports: Path) -> set[str]:
    """Workers that judged cells."""
    return {
        path.stem
        for path in (reports / "latest" / "journal").glob("gw*.jsonl")
        if any(json.loads(line)["event"] == "judged" for line in path.read_text().splitlines())
    }


def test_two_workers_share_a_tunnel_and_open_one_other_when_it_is_killed(
    ran: Callable[..., dict[str, dict[str, str]]], way: Way, pytester: pytest.Pytester
) -> None:
    last = f"Path('{way.calls}').read_text().splitlines()"
    kills = f"os.kill([int(line.split()[0]) for line in {last} if ' -L ' in line][-1], signal.SIGKILL)"
    cells = ran(kills, "--hetgpu-retries", "2")
    assert [one["verdict"] for one in cells.values()] == ["ok"] * 6
    assert cells["left-ob1-barrier-b"]["attempts"] == "2"
    assert writers(pytester.path / "reports") == {"gw0", "gw1"}
    assert way.own == len(way.tunnels()) == 2
    assert way.left == []


def test_the_others_keep_a_tunnel_whose_opener_is_killed(
    ran: Callable[..., dict[str, dict[str, str]]], way: Way, pytester: pytest.Pytester
) -> None:
    cells = ran("os.kill(os.getpid(), signal.SIGKILL)")
    others = {name: one["verdict"] for name, one in cells.items() if name != "left-ob1-barrier-b"}
    assert set(others.values()) == {"ok"}
    assert len(others) == 5
    # The worker that takes its place may begin when the other has ended, and the tunnel with it.
    assert way.own <= 2
    assert way.left == []
