"""Processes of a run are killed, or told to stop: pytest, its workers, mpirun, a rank."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

import psutil
import pytest

from tests.faults.conftest import Fault
from tests.faults.harness import AT_NIGHT, Session, local, meetings
from tests.xdist_here import has_xdist

pytestmark = [pytest.mark.real, pytest.mark.beside]

ALONE, TWO = (), ("-n", "2")
Workers = tuple[str, ...]


@pytest.fixture(params=[pytest.param(ALONE, id="alone", marks=AT_NIGHT), pytest.param(TWO, id="workers")])
def workers(request: pytest.FixtureRequest, lacking: Callable[[str, str], None]) -> Workers:
    """Without pytest-xdist, and with two workers."""
    if request.param and not has_xdist():
        lacking("xdist", "pytest-xdist is not installed")
    return tuple(request.param)


@pytest.fixture
def two_workers(lacking: Callable[[str, str], None]) -> Workers:
    if not has_xdist():
        lacking("xdist", "pytest-xdist is not installed")
    return TWO


def test_pytest_is_killed(fault: Fault, workers: Workers) -> None:
    """`kill -9` of pytest, or of the controller of two workers."""
    session = fault.at(local(meetings(5))).start(*workers)
    session.reaches()
    session.process.kill()
    fault.checked(session)


def test_a_worker_is_killed(fault: Fault, two_workers: Workers) -> None:
    """`kill -9` of one of two workers."""
    session = fault.at(local(meetings(5))).start(*two_workers)
    session.reaches()
    worker = psutil.Process(session.events("started")[-1]["pid"])
    assert worker.pid != session.process.pid
    worker.kill()
    fault.checked(session)


def test_mpirun_is_killed(fault: Fault) -> None:
    """`kill -9` of mpirun."""
    session = fault.at(local(meetings(4))).start()
    cell = session.reaches(spread=0.3)
    session.until(session.launchers, "mpirun")[0].kill()
    fault.checked(session, cell)


def test_a_rank_is_killed(fault: Fault) -> None:
    """`kill -9` of a rank."""
    session = fault.at(local(meetings(4))).start()
    cell = session.reaches(spread=0.3)
    fault.chance.choice(session.until(session.ranks, "ranks")).kill()
    fault.checked(session, cell)


def test_interrupt(fault: Fault, workers: Workers) -> None:
    """SIGINT."""
    stopped(fault, signal.SIGINT, workers)


def test_terminate(fault: Fault, workers: Workers) -> None:
    """SIGTERM."""
    stopped(fault, signal.SIGTERM, workers)


def stopped(fault: Fault, number: signal.Signals, workers: Workers) -> None:
    session = fault.at(local(meetings(5))).start(*workers)
    session.reaches()
    session.process.send_signal(number)
    assert session.end() == pytest.ExitCode.INTERRUPTED
    fault.checked(session)


def test_the_terminal_is_closed(fault: Fault) -> None:
    """SIGHUP: the terminal is closed."""
    session = fault.at(local(meetings(5))).start(terminal=True)
    session.reaches()
    (below,) = psutil.Process(session.process.pid).children()
    session.process.kill()
    below.wait(60)
    fault.checked(session)


def test_ctrl_c_twice(fault: Fault) -> None:
    """Ctrl-C twice."""
    session = fault.at(local(meetings(5))).start()
    session.reaches()
    # As from a terminal: to everybody in the foreground.
    os.killpg(session.process.pid, signal.SIGINT)
    _shortly(session, fault.chance.uniform(0, 0.5))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session.process.pid, signal.SIGINT)
    fault.checked(session)


def _shortly(session: Session, seconds: float) -> None:
    """Waits, unless it ends before."""
    with contextlib.suppress(Exception):
        session.end(seconds)
