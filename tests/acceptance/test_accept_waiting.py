"""A cell whose host somebody else has: what is seen of that, at a terminal and in a log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from junitparser import JUnitXml

from pytest_hetgpu.cluster.leases.host_lock import HOST, HostLock
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.cells import read_cells
from tests.acceptance.at_a_terminal import Terminal
from tests.acceptance.test_accept_stop import as_in_a_terminal

Matrix = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("stacks")
LABEL = "two-ob1-tcp-allreduce-good"
WHY = f"waits for host localhost: ada holds it for cell x of run y, process {os.getpid()}"
ARGV = (sys.executable, "-m", "pytest", "--hetgpu-matrix", "demo.yaml", "-p", "no:cacheprovider")


@pytest.fixture
def busy(matrix: Matrix) -> Iterator[HostLock]:
    """Somebody else has this machine."""
    matrix(("good",))
    claim = HostLock(os.environ["HETGPU_LEASES"], HOST, {"user": "ada", "cell": "x", "run": "y"})
    assert claim.granted(0)
    yield claim
    claim.release()


def test_the_view_says_who_is_waited_for(pytester: pytest.Pytester, busy: HostLock) -> None:
    terminal = Terminal((*ARGV, "-p", "no:xdist"), pytester.path)
    shown = terminal.until(lambda text: "waits for host" in text)
    assert LABEL in shown
    assert WHY[:40] in shown
    busy.release()
    assert "waits for host" not in terminal.end()
    assert terminal.status == 0


@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n2",)])
def test_a_log_has_a_line_of_it(pytester: pytest.Pytester, busy: HostLock, workers: tuple[str, ...]) -> None:
    if "-n2" in workers:
        pytest.importorskip("xdist.plugin")
    command = (*ARGV, *workers)
    with subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, text=True) as session:
        assert session.stdout
        said = next(line for line in session.stdout if "waits for host" in line)
        busy.release()
        rest = session.stdout.read()
    assert said.startswith(f"waiting  {LABEL}  {WHY}; for ")
    assert f"ok       {LABEL}" in rest
    assert session.returncode == 0


@pytest.mark.parametrize(
    ("number", "workers"),
    [
        (signal.SIGTERM, ("-p", "no:xdist")),
        (signal.SIGINT, ("-p", "no:xdist")),
        (signal.SIGHUP, ("-p", "no:xdist")),
        (signal.SIGTERM, ("-n2",)),
        (signal.SIGINT, ("-n2",)),
    ],
)
def test_a_signal_ends_the_wait_and_the_cell_is_not_run(
    pytester: pytest.Pytester,
    busy: HostLock,
    latest: Callable[[], Path],
    number: signal.Signals,
    workers: tuple[str, ...],
) -> None:
    if "-n2" in workers:
        pytest.importorskip("xdist.plugin")
    command = (*ARGV, *workers, "--junitxml", "own.xml")
    with subprocess.Popen(
        command,
        cwd=pytester.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=as_in_a_terminal,  # noqa: PLW1509 - no other thread of this process takes a lock
    ) as session:
        assert session.stdout
        assert any("waits for host" in line for line in session.stdout)
        session.send_signal(number)
        rest = session.stdout.read()
    assert session.returncode == 2
    assert f"not run  {LABEL} the run was stopped ({number.name})" in rest
    assert f" Interrupted: stopped by {number.name} " in rest
    assert "KeyboardInterrupt" not in rest
    assert "signals.py" not in rest
    (cell,) = read_cells(latest())
    assert (cell.outcome.kind, cell.outcome.verdict) == (Kind.UNKNOWN, Verdict.NOT_RUN)
    assert [len(case.result) for suite in JUnitXml.fromfile(str(pytester.path / "own.xml")) for case in suite] == [1]


BEHIND_TLS = """\
from pytest_hetgpu.cluster.leases import hold
from pytest_hetgpu.extensions.runtimes.docker import Docker
from pytest_hetgpu.model.job import Hardware, Node, ConnectionInfo

NODE = Node(0, Hardware("box", runtime="docker"), "gpu1", 1, reach=ConnectionInfo("https://gpu1:2376"))
hold.lease_requests = lambda nodes: (Docker.lease(NODE),)
"""


def test_a_host_that_runs_from_elsewhere_are_not_kept_off_is_noted(
    pytester: pytest.Pytester,
    matrix: Matrix,
    run_pytest: Callable[..., pytest.RunResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix(("good",))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    pytester.makeconftest(BEHIND_TLS)
    done = run_pytest(*ARGV[3:])
    assert done.ret == 0
    done.stdout.fnmatch_lines(["note: *gpu1:2376 was leased on this machine only, *reached over TLS,*) ?1 cell?"])


LOSING = """\
from pytest_hetgpu.cluster.leases.hold import HeldLeases

HeldLeases.lost = property(lambda self: self.words)
"""


def test_a_cell_that_lost_its_host_in_the_middle_is_no_pass(
    pytester: pytest.Pytester, matrix: Matrix, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    matrix(("good",))
    pytester.makeconftest(LOSING)
    done = run_pytest(*ARGV[3:])
    assert done.ret == 1
    done.stdout.fnmatch_lines([f"new *{LABEL}*network_failure: the lease of localhost ended in the middle *"])
