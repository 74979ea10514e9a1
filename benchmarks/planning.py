"""What is known before a job starts, for many cells over many hosts: `.venv/bin/python benchmarks/planning.py`.

A matrix and an inventory are written, in which each placement has hosts of its own. Measured are reading and expanding
them, planning every cell's job, the hosts and seconds of all cells as tasks, and the scheduler's decisions for a whole
run: workers that run nothing, on a clock that is only a number, two for each job that can run at once, 1,000 at most.
Every row is a process of its own; its last column is the most memory that it had.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_hetgpu.planning.matrix_set import MatrixSet, RunInputs
from pytest_hetgpu.session.xdist.scheduler import Scheduler
from pytest_hetgpu.session.xdist.tasks import nodes_of, tasks
from pytest_hetgpu.session.xdist.waiting import Task

ROWS = ("10000,1000,2", "10000,1000,10", "10000,10000,2", "10000,100000,20", "100000,1000,2", "100000,100000,20")
TARGET = 5.0
MOST_WORKERS = 1000


def written(folder: Path, cells: int, hosts: int, width: int) -> tuple[Path, Path]:
    """A matrix of so many cells and an inventory of so many hosts, `width` of them a placement."""
    placements = max(1, hosts // width)
    tunings = -(-cells // (2 * placements))
    lines = ["name: many", "hardware:", *(f"  k{one}: {{runtime: ssh}}" for one in range(placements)), "axes:"]
    lines += ["  placement:", *(f"    p{one}: [{', '.join([f'k{one}'] * width)}]" for one in range(placements))]
    lines += ["  transport: {ob1: {family: ob1}, ucx: {family: ucx}}", "  workload: {allreduce: {sizes: 8..64K}}"]
    lines += ["  tuning:", *(f"    t{one}: {{env: {{BENCH: {one}}}}}" for one in range(tunings))]
    matrix, inventory = folder / "many.yaml", folder / "hosts"
    matrix.write_text("\n".join(lines) + "\n")
    named = [f"10.{one >> 16 & 255}.{one >> 8 & 255}.{one & 255}" for one in range(hosts)]
    inventory.write_text("".join(f"{host}  # hardware=k{one // width}\n" for one, host in enumerate(named)))
    return matrix, inventory


def simulated(given: list[Task], workers: int) -> float:
    """Runs the tasks on a clock that is only a number; what it says at the end, in the bound that no order can beat."""
    board, now, ends = Scheduler(given), 0.0, list[tuple[float, Any]]()
    for worker in range(workers):
        board.add_worker(worker)
    while True:
        for move in board.assignments(now):
            running = board.workers[move.worker].running
            assert running
            heapq.heappush(ends, (now + running.seconds, move.worker))
        if not ends:
            break
        now, worker = heapq.heappop(ends)
        board.finish(worker)
    assert board.finished
    load: dict[str, float] = {}
    for task in given:
        load.update({host: load.get(host, 0.0) + task.seconds for host in task.hosts})
    return now / max(*load.values(), sum(task.seconds for task in given) / workers)


def measured(cells: int, hosts: int, width: int) -> None:
    """Prints one row."""
    taken = []

    def timed(work: Callable[[], object]) -> object:
        started = time.process_time()
        found = work()
        taken.append(time.process_time() - started)
        return found

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        matrix, inventory = written(folder, cells, hosts, width)
        suite = timed(
            lambda: MatrixSet.load(
                [matrix], folder, timeout=60, environ=os.environ, inputs=RunInputs(f"hostfile:{inventory}")
            )
        )
    assert isinstance(suite, MatrixSet)
    timed(lambda: [suite.job(scenario) for scenario in suite.scenarios])
    ids = [f"test_matrix.py::test_cell[{scenario.label}]" for scenario in suite.scenarios]
    random.seed(1)
    seconds = {(scenario.matrix, scenario.id): random.uniform(1, 9) for scenario in suite.scenarios}
    made = timed(lambda: tasks(ids, suite.scenarios, nodes_of(suite.matrices, suite.inventory), seconds))
    assert isinstance(made, list)
    over = timed(lambda: simulated(made, min(MOST_WORKERS, 2 * hosts // width)))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = " | ".join(f"{one:.2f}" for one in (*taken, sum(taken)))
    print(f"| {len(ids):,} | {hosts:,} | {width} | {figures} | {over:.2f} | {memory:.0f} |", flush=True)
    if (cells, hosts) == (10_000, 1_000) and sum(taken) > TARGET:
        sys.exit(f"planning {cells:,} cells over {hosts:,} hosts took more than {TARGET:g} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", metavar="CELLS,HOSTS,NODES", help="measures this one alone, without a heading")
    given = parser.parse_args()
    if given.row:
        cells, hosts, width = map(int, given.row.split(","))
        measured(cells, hosts, width)
        return
    print(
        "| cells | hosts | nodes a job | reading, s | jobs, s | tasks, s | schedule, s | all, s | of the bound | MB |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    # Each after its end: what is true of one row is not to disturb the next.
    failed = [subprocess.run((sys.executable, __file__, "--row", row), check=False).returncode for row in ROWS]
    sys.exit(max(failed))


if __name__ == "__main__":
    main()
