"""Make a year of nights, put them into a history, and time what reads it.

    python benchmarks/nights.py [--cells 1000] [--nights 365]

Each cell has the shape of one of `matrices/containers.yaml`: three metrics at three sizes, five samples each. One cell
in ten fails always. One in fifty breaks in some night, and one in fifty becomes slower by 3 x the noise. The table has
the median of three runs; `rows of SQLite` is the time in which SQLite itself inserts, or reads, rows like these.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pytest_hetgpu.cli.history import HistoryOptions
from pytest_hetgpu.cli.history import run as print_history
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import history
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary

NIGHT = 86_400.0
FIRST = 1_764_000_000.0
TRANSPORTS = ("ob1", "ucx-tcp", "ofi-tcp", "shm", "nccl")
WORKLOADS = ("send_recv", "allreduce", "alltoall", "bcast", "allgather")
SIZES = (8, 65_536, 1 << 20)
NOISE = 0.03


def cells(number: int) -> Iterator[CellSummary]:
    """Yield so many cells of a matrix, all of which work."""
    for place in range(number):
        transport, workload = TRANSPORTS[place % 5], WORKLOADS[place // 5 % 5]
        placement = f"pair{place // 25}"
        axes = {"placement": placement, "transport": transport, "workload": workload}
        yield CellSummary(
            "year",
            "-".join(axes.values()),
            Kind.PASSED,
            Verdict.OK,
            axes,
            seconds=0.58,
            stack="Open MPI 5.0.11 (/opt/mpi/lib/libmpi.so.40)",
            transports=(f"{transport}/tcp",),
            facts={"openmpi": "5.0.11", "ucx": "1.20.1", "libfabric": "2.5.1", "memory": "host"},
            tool=f"{workload}.py",
            nodes={"hosts": f"{placement}a | {placement}b", "kernel": "6.1.0-28-amd64", "cuda.driver": "570.86"},
        )


def measured(random_: random.Random, factor: float = 1.0) -> tuple[Measurement, ...]:
    """Return latency, algbw and busbw at three sizes; `factor` makes all times longer."""
    found = []
    night = random_.gauss(1.0, NOISE)
    for size in SIZES:
        times = [(11.0 + size / 2300) * factor * night * random_.gauss(1.0, 0.01) for _ in range(5)]
        rates = [size / (one * 1e3) for one in times]
        for metric, unit, values in (("latency", "us", times), ("algbw", "GB/s", rates), ("busbw", "GB/s", rates)):
            point = MessagePoint(size, "float32")
            found.append(Measurement(metric, statistics.median(values), unit, point, 2, tuple(values)))
    return tuple(found)


class Planted(NamedTuple):
    """A change that was made: the place of its cell, its night, and the factor on its times; 0 is a failure."""

    place: int
    night: int
    factor: float

    @property
    def kernel(self) -> str:
        """Return the kernel of the cell's nodes from that night on."""
        return f"6.1.0-{100 + self.place}-amd64"


def planted(number: int, count: int, seed: int = 1, every: int = 50) -> tuple[Planted, ...]:
    """Return one failure and one slowdown of 3 x the noise for each `every` cells."""
    random_ = random.Random(seed)
    found = []
    for first in range(0, number, every):
        for place, factor in ((first, 0.0), (first + 7, 1 + 3 * NOISE)):
            if place < number:
                found.append(Planted(place, random_.randrange(count // 3, count - 10), factor))
    return tuple(found)


def nights(number: int, count: int, seed: int = 1, every: int = 50) -> Iterator[RunSummary]:
    """Yield the runs of `count` nights over `number` cells."""
    random_ = random.Random(seed)
    base = tuple(cells(number))
    turns = {one.place: one for one in planted(number, count, seed, every)}
    for night in range(count):
        made = []
        wires = {placement: random_.choice((2.8, 2.9)) for placement in range(number // 25 + 1)}
        for place, cell in enumerate(base):
            turn = turns.get(place)
            after = turn is not None and night >= turn.night
            one = replace(cell, facts={**cell.facts, "wire": f"{wires[place // 25]} GB/s (pump)"})
            if turn and after:
                one = replace(one, nodes={**one.nodes, "kernel": turn.kernel})
            if place % 10 == 1 or (turn and after and not turn.factor):
                verdict = Verdict.KNOWN if place % 10 == 1 else Verdict.NEW
                why = "rank 1 was killed by SIGSEGV in uct_cuda_copy_ep_get_short (line 212)"
                one = replace(one, kind=Kind.CRASH, verdict=verdict, signature=f"SIGSEGV@libuct_{place}.so", why=why)
            else:
                one = replace(one, measurements=measured(random_, turn.factor if turn and after else 1.0))
            made.append(one)
        started = FIRST + NIGHT * night
        name = time.strftime("%Y%m%d-%H%M%S-0000", time.gmtime(started))
        files = (MatrixFile("year", "year.yaml", "0" * 64),)
        basis = {"matrix year": "sha256 " + "0" * 64, "image of g4dn": "hetgpu/cuda@sha256:" + "1" * 64}
        yield RunSummary(name, f"reports/{name}", started, "ci1", "0.1.0", files, tuple(made), basis=basis)


def taken(work: Callable[[], object]) -> float:
    """Return the median of three times in seconds."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def plain_rows(file: Path, cells_: int) -> tuple[float, float]:
    """Return the seconds in which SQLite inserts the rows of a night, and reads those of 60."""
    rows = [(place, point, 1.5, "[1.5,1.5,1.5,1.5,1.5]") for place in range(cells_) for point in range(9)]
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE number (outcome, point, value, samples, PRIMARY KEY (outcome, point)) WITHOUT ROWID")
        db.execute("CREATE TABLE outcome (id INTEGER PRIMARY KEY, run, identity, setting, kind, verdict, signature)")
        began = time.perf_counter()
        with db:
            db.executemany("INSERT INTO number VALUES (?, ?, ?, ?)", rows)
        inserted = time.perf_counter() - began
        many = ((place, place % 60, place, place, "passed", "ok", "") for place in range(60 * cells_))
        with db:
            db.executemany("INSERT INTO outcome VALUES (NULL, ?, ?, ?, ?, ?, ?)", (one[1:] for one in many))
        return inserted, taken(lambda: db.execute("SELECT * FROM outcome").fetchall())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep the history here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = options.keep or Path(folder, "history.sqlite")
        times = []
        for run in nights(options.cells, options.nights):
            began = time.perf_counter()
            history.put(file, run)
            times.append(time.perf_counter() - began)
        inserted, read = plain_rows(Path(folder, "plain.sqlite"), options.cells)
        lines: list[str] = []
        rows = [
            ("size of the file, MB", file.stat().st_size / 1e6, None),
            ("insert of a night, s", statistics.median(times), inserted),
            ("the slowest insert, s", max(times), inserted),
            ("hetgpu history, s", taken(lambda: print_history(file, HistoryOptions(60), lines.append)), read),
        ]
    print(f"{options.cells:,} cells, {options.nights} nights | measured | rows of SQLite\n---|---|---")
    for name, value, plain in rows:
        print(f"{name} | {value:.3g} | {'' if plain is None else f'{plain:.3g}'}")


if __name__ == "__main__":
    main()
