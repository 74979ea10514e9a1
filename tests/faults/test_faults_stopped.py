"""A process of a run is stopped by a signal, and goes on existing: nothing ends, and nobody says why."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import psutil
import pytest

from tests.faults.conftest import Fault
from tests.faults.harness import MEETING, command, local, meetings
from tests.xdist_here import has_xdist

pytestmark = [pytest.mark.real, pytest.mark.beside]


def test_mpirun_is_stopped(fault: Fault) -> None:
    """SIGSTOP of mpirun."""
    hit = command(MEETING.format(steps=20), timeout=6)
    session = fault.at(local({**meetings(3, 0.2), "meet1": hit})).start()
    cell = session.reaches(2, spread=0.3, output="met once")
    launcher = session.until(session.launchers, "mpirun")[0]
    name = launcher.name()
    launcher.send_signal(signal.SIGSTOP)
    fault.checked(session, cell)
    judged = session.judged()
    (outcome,) = (found for (_, label), found in judged.items() if label == cell)
    assert outcome["kind"] == "hang"
    assert outcome["signature"]["key"] == f"stopped@{name}"
    assert f"{name} on " in outcome["why"]
    assert f"(pid {launcher.pid}) was stopped by a signal (state T), send it SIGCONT" in outcome["why"]


@pytest.mark.parametrize("renamed", [False, True], ids=["", "renamed"])
def test_a_worker_is_stopped_at_ctrl_c(fault: Fault, lacking: Callable[[str, str], None], renamed: bool) -> None:
    """SIGSTOP of one of two workers, and Ctrl-C."""
    if not has_xdist():
        lacking("xdist", "pytest-xdist is not installed")
    session = fault.at(local(meetings(4, 1))).start("-n", "2")
    session.reaches(spread=0.3)
    worker = psutil.Process(session.events("started")[-1]["pid"])
    worker.send_signal(signal.SIGSTOP)
    if renamed:
        session.run.rename(session.run.with_name(f"{session.run.name}-moved"))
    session.process.send_signal(signal.SIGINT)
    # pytest-xdist kills a worker that does not end after 10 s.
    assert session.end(9) == (pytest.ExitCode.INTERNAL_ERROR if renamed else pytest.ExitCode.INTERRUPTED)
    printed = session.printed.read_text()
    assert re.search(rf"^worker gw\d \(pid {worker.pid}\) was stopped by a signal \(state T\): ", printed, re.MULTILINE)
    fault.checked(session)
