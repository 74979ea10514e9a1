"""Ranks of MPICH die, and with them nobody who would remove the memory that they shared."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.conftest import Fault
from tests.faults.harness import Session, local, meetings

pytestmark = [pytest.mark.real, pytest.mark.beside]

SHARED = Path("/dev/shm")


def over_mpich(prefix: Path) -> dict[str, Any]:
    """Three cells, the second long enough to be hit."""
    matrix = local({**meetings(3, 0.2), "meet1": {**meetings(1, 2)["meet0"]}})
    matrix["hardware"] = {"here": {"runtime": "local", "mpi": {"stack": "mpich"}}}
    matrix["axes"]["transport"] = {"auto": {}}
    return matrix


def mapped(session: Session) -> tuple[list[psutil.Process], set[str]]:
    """The ranks that run, once each has mapped a segment of MPICH, and the names of these."""

    def look() -> tuple[list[psutil.Process], set[str]] | None:
        # The parent that reports a rank's end has the rank's variables as well, and maps nothing.
        started = session._those(lambda p: "PMI_RANK" in p.environ() and "python" in p.name()) or []
        maps = {one: {Path(m.path).name for m in one.memory_maps() if "mpich_shm_" in m.path} for one in started}
        ranks = [one for one, names in maps.items() if names]
        return (ranks, set().union(*maps.values())) if len(ranks) == 2 else None

    def quietly() -> tuple[list[psutil.Process], set[str]] | None:
        try:
            return look()
        except psutil.Error:
            return None

    return session.until(quietly, "mapped segments")


@pytest.fixture
def mpich(stacks_here: Callable[[str], Path]) -> Mapping[str, Any]:
    return over_mpich(stacks_here("mpich"))


def gone(names: set[str]) -> None:
    """The segments go with what used them."""
    deadline = time.monotonic() + 10
    while any((SHARED / name).exists() for name in names) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [name for name in names if (SHARED / name).exists()]


def test_a_rank_of_mpich_crashes(fault: Fault, mpich: Mapping[str, Any]) -> None:
    """A rank of MPICH crashes, with memory that it shares."""
    session = fault.at(mpich).start()
    cell = session.reaches(2, spread=0.3, output="met once")
    ranks, names = mapped(session)
    fault.chance.choice(ranks).send_signal(signal.SIGSEGV)
    fault.checked(session, cell)
    gone(names)


def test_pytest_and_mpirun_are_killed_over_mpich(fault: Fault, mpich: Mapping[str, Any]) -> None:
    """`kill -9` of pytest and of an MPICH mpirun, with memory that its ranks share."""
    session = fault.at(mpich).start()
    session.reaches(2, spread=0.3, output="met once")
    _, names = mapped(session)
    session.process.kill()
    for launcher in session._those(lambda p: p.name().startswith(("mpirun", "mpiexec", "hydra"))) or []:
        launcher.kill()
    fault.checked(session)
    gone(names)
