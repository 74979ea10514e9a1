"""Those who wait for a lock get it in the order they came, and a line that is broken costs only the order."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_hetgpu.cluster.leases import host_lock
from pytest_hetgpu.cluster.leases.host_lock import HostLock, WaitQueue

PATIENCE = 60.0
MOMENT = 0.001
WAITING = """
import sys
from pytest_hetgpu.cluster.leases.host_lock import HostLock
claim = HostLock(sys.argv[1], "gpu1", {})
assert not claim.granted(0.001)
print("in line", flush=True)
claim.granted(None)
"""


class Crowd:
    """Claims on one machine."""

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self.folder = folder
        self._ending = ending

    def claim(self) -> HostLock:
        made = HostLock(str(self.folder), "gpu1", {})
        self._ending.callback(made.release)
        return made

    def holds(self) -> HostLock:
        made = self.claim()
        assert made.granted(0)
        return made

    def waits(self) -> HostLock:
        made = self.claim()
        assert not made.granted(MOMENT)
        return made

    @property
    def file(self) -> Path:
        self.claim()
        (path,) = self.folder.glob("*.turn")
        return path


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with ExitStack() as ending:
        yield Crowd(tmp_path, ending)


def test_who_came_first_is_first(crowd: Crowd) -> None:
    holder = crowd.holds()
    waiting = [crowd.waits() for _ in range(5)]
    for first, *others in (waiting[place:] for place in range(len(waiting))):
        holder.release()
        assert first.granted(PATIENCE)
        assert not any(other.granted(MOMENT) for other in others)
        holder = first


def test_a_lock_that_is_free_is_not_taken_from_those_who_wait(crowd: Crowd) -> None:
    with crowd.file.open("r+b") as file:
        line = WaitQueue(file.fileno())
        assert line.empty()
        assert line.join()
        late = crowd.claim()
        assert not late.granted(0)
        assert not late.granted(MOMENT)
        line.leave()
        assert late.granted(PATIENCE)


def test_who_gives_up_waiting_lets_the_next_one_go_on(crowd: Crowd) -> None:
    holder, impatient, patient = crowd.holds(), crowd.waits(), crowd.waits()
    impatient.release()
    assert not patient.granted(MOMENT)
    holder.release()
    assert patient.granted(PATIENCE)


def test_who_is_killed_in_line_leaves_it_and_nobody_has_the_lock_for_that(crowd: Crowd) -> None:
    holder, first = crowd.holds(), crowd.waits()
    with subprocess.Popen(
        (sys.executable, "-c", WAITING, str(crowd.folder)), stdout=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout
        assert killed.stdout.readline() == "in line\n"
        last = crowd.waits()
        killed.kill()
    assert not last.granted(MOMENT)
    holder.release()
    assert first.granted(PATIENCE)
    assert not last.granted(MOMENT)
    first.release()
    assert last.granted(PATIENCE)


@given(nonsense=st.binary(max_size=40) | st.integers().map(lambda number: str(number).encode()))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nonsense_in_the_file_costs_only_the_order(tmp_path: Path, nonsense: bytes) -> None:
    with ExitStack() as ending:
        crowd = Crowd(tmp_path, ending)
        holder, waiting = crowd.holds(), {crowd.waits(), crowd.waits()}
        crowd.file.write_bytes(nonsense)
        waiting.add(crowd.waits())
        while waiting:
            assert not any(one.granted(MOMENT) for one in waiting)
            holder.release()
            holder = next(one for _ in range(1000) for one in waiting if one.granted(0.01))
            waiting.remove(holder)


def test_a_file_that_we_may_not_write_to_costs_only_the_order(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, writer = crowd.holds(), crowd.waits()
    with monkeypatch.context() as only_to_read:
        only_to_read.setattr(host_lock, "_open", lambda path: os.open(path, os.O_RDONLY))
        reader = crowd.waits()
    late = crowd.waits()
    holder.release()
    for _ in range(3):
        waiting = [one for one in (writer, reader, late) if one is not holder]
        got = next(one for _ in range(1000) for one in waiting if one.granted(0.01))
        assert sum(one.granted(0) for one in (writer, reader, late)) == 1
        got.release()
        holder = got
