"""What a run stands on gives way: the disk is full, the clock jumps, its ranks write more than anybody reads."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import Fault
from tests.faults.harness import Site, command, local, meetings
from tests.real.nodes_here import properties

pytestmark = [pytest.mark.real, pytest.mark.beside]

CLOCK = Path(__file__).with_name("clock.c")
HOUR = 3600
RANKS = 8
SECONDS = 2
LINES = 10_000
"""A second, by all ranks."""
FLOOD = f"""\
import sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
began = time.monotonic()
for step in range({SECONDS * 10}):
    line = "%d of rank %d: Segmentation fault, out of memory, connection refused\\n" % (step, world.rank)
    sys.stdout.write(line * {LINES // 10 // RANKS})
    sys.stdout.flush()
    time.sleep(max(0, began + (step + 1) / 10 - time.monotonic()))
world.allreduce(1)
sys.stdout.write("met %d\\n" % world.size)
"""


@pytest.fixture
def small_disk(tmp_path: Path, lacking: Callable[[str, str], None]) -> Iterator[Path]:
    """A file system of 4 MB under the reports."""
    reports = tmp_path / "reports"
    reports.mkdir()
    mounted = ("mount", "-t", "tmpfs", "-o", "size=4m", "hetgpu", str(reports))
    if os.geteuid() or subprocess.run(mounted, capture_output=True, check=False).returncode:
        lacking("docker", "no file system can be mounted here")
    yield reports
    subprocess.run(("umount", "-l", str(reports)), check=False, capture_output=True)


def fill(disk: Path) -> Path:
    """Takes every byte that is free; the file that has them."""
    filler = disk / "filler"
    descriptor = os.open(filler, os.O_CREAT | os.O_WRONLY)
    try:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while os.write(descriptor, b"x" * size):
                    pass
            except OSError:
                continue
    finally:
        os.close(descriptor)
    return filler


def test_the_disk_is_full(fault: Fault, small_disk: Path) -> None:
    """The disk under the reports is full, until the run has ended."""
    session = fault.at(local(meetings(5))).start()
    session.reaches()
    filler = fill(small_disk)
    try:
        session.end()
    finally:
        filler.unlink()
    fault.checked(session)


class Clock:
    """What time it is for processes of a site: so many seconds beside what it is."""

    def __init__(self, site: Site, library: Path) -> None:
        self.path = site.temporary / "clock"
        self.path.write_bytes(bytes(8))
        site.env.update(LD_PRELOAD=str(library), HETGPU_FAULT_CLOCK=str(self.path))

    def jump(self, seconds: int) -> None:
        """For all that run, and for those to come."""
        with self.path.open("r+b") as file, mmap.mmap(file.fileno(), 8) as shared:
            shared[:8] = struct.pack("q", seconds)


@pytest.fixture
def clock_library(tmp_path: Path, lacking: Callable[[str, str], None]) -> Path:
    """A shared library with a clock that can be set, without setting that of the machine."""
    compiler = shutil.which("cc")
    if compiler is None:
        lacking("cc", "there is no C compiler")
    if not sysconfig.get_config_var("HAVE_SEM_CLOCKWAIT"):
        # Where waits go by the clock on the wall, the kernel's is meant, which stays as it is.
        pytest.skip("this Python waits by the clock on the wall")
    library = tmp_path / "clock.so"
    subprocess.run((str(compiler), "-shared", "-fPIC", "-O1", "-o", str(library), str(CLOCK)), check=True)
    return library


def test_the_clock_jumps_back(fault: Fault, clock_library: Path) -> None:
    """The clock jumps back by an hour, and `kill -9` of pytest some cells later."""
    site = fault.at(local(meetings(5)))
    clock = Clock(site, clock_library)
    session = site.start()
    session.reaches(2)
    clock.jump(-HOUR)
    session.reaches(4)
    session.process.kill()
    fault.checked(session)


def test_the_stack_is_away(fault: Fault, stack_prefix: Path) -> None:
    """The folder of an MPI is away, until the run has ended."""
    own, away = fault.home / "stacks" / "openmpi-5", fault.home / "stacks" / "away"
    shutil.copytree(stack_prefix, own, symlinks=True)
    site = fault.at(local(meetings(4, 0.3)))
    site.env.update(HETGPU_STACKS=str(own.parent), HETGPU_STACK_OPENMPI_5=str(own))
    session = site.start()
    session.reaches(2, spread=0.2)
    own.rename(away)
    assert session.end() == pytest.ExitCode.TESTS_FAILED
    missed = [cell[-1] for cell, outcome in session.judged().items() if outcome.get("away") == "stack"]
    assert missed, session.said()
    # The cell in flight may fail in another way, or be skipped for a program that is not there: it is run again, too.
    assert missed == [cell[-1] for cell, outcome in session.judged().items() if outcome["verdict"] != "ok"]
    away.rename(own)
    fault.checked(session)
    cells = properties(fault.home / "reports")
    assert {cells[name]["outcome"] for name in missed} == {"passed"}


def test_a_flood_of_lines(fault: Fault) -> None:
    """10,000 lines a second from 8 ranks, and `kill -9` of pytest amid them."""
    workloads = {**meetings(3, 0.2), "meet1": command(FLOOD)}
    session = fault.at(local(workloads, ranks=RANKS)).start()
    cell = session.reaches(2, spread=SECONDS, output="Segmentation fault")
    session.process.kill()
    fault.checked(session)
    log = session.run / "scenarios" / cell / "output.log"
    assert log.read_text(errors="replace").count("connection refused") == SECONDS * LINES
