"""What a cell costs beyond its srun: `.venv/bin/python benchmarks/slurm.py` (as root).

Needs the packages that docs/how-to/slurm.md names.

A real Slurm of four nodes on this machine. One session, one allocation of two nodes: after each cell, while the
placement stands, the same srun is typed by hand in that allocation, so that a drifting machine drifts for both. A cell
is all from its test's start to the next one's, but for what was done by hand. The first cell, which waits for its
allocation, does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.slurm import cluster as slurm  # noqa: E402 - the checkout's own

TARGET = 150.0  # milliseconds that a cell may take beyond its srun
MATRIX = """\
name: bench
hardware: {{one: {{runtime: slurm, slurm: {{partition: cuda, time: 30, queue: 60}}, mpi: {{stack: openmpi-5}}}}}}
axes:
  placement: {{pair: [one, one]}}
  transport: {{ob1: {{family: ob1}}}}
  workload: {{allreduce: {{sizes: 8, iterations: 2, launcher: srun}}}}
  tuning: {{{tunings}}}
"""
CELLS = """\
import json
import os
import subprocess
import time


def test_cell(cluster, run):
    begin = time.perf_counter()
    seconds = run().seconds
    paused = time.perf_counter()
    (number,) = subprocess.run(("squeue", "-h", "-o", "%i"), capture_output=True, text=True).stdout.split()
    env = {**os.environ, **cluster.job.command.env, "SLURM_JOB_ID": number}
    clock = time.perf_counter()
    hand = subprocess.run(cluster.job.command.argv, env=env, capture_output=True, text=True)
    hand_seconds = time.perf_counter() - clock
    assert hand.stdout.count('"t":"done"') == 2, hand.stdout + hand.stderr
    with open("times", "a") as file:
        print(json.dumps([begin, seconds, hand_seconds, time.perf_counter() - paused]), file=file)
"""


def session(folder: Path, cells: int, env: dict[str, str]) -> list[tuple[float, float, float]]:
    """Milliseconds of each cell in all, of its srun, and of the same srun by hand."""
    tunings = ", ".join(f"t{index}: {{env: {{BENCH: {index}}}}}" for index in range(cells + 2))
    (folder / "bench.yaml").write_text(MATRIX.format(tunings=tunings))
    (folder / "test_bench.py").write_text(CELLS)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hetgpu-matrix", "bench.yaml")
    given = ("--hetgpu-wire", "off", "test_bench.py")
    done = subprocess.run((*command, *given), cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
    times = [json.loads(line) for line in (folder / "times").read_text().splitlines()]
    return [
        (1000 * (later[0] - begin - paused), 1000 * seconds, 1000 * by_hand)
        for (begin, seconds, by_hand, paused), later in pairwise(times[1:])
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=60)
    given = parser.parse_args()
    if lack := slurm.lacks():
        sys.exit(lack)
    with slurm.running() as cluster, tempfile.TemporaryDirectory() as name:
        env = {name: value for name, value in cluster.env.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["HETGPU_STACKS"] = os.pathsep.join(filter(None, (str(ROOT / ".stacks"), env.get("HETGPU_STACKS"))))
        taken = session(Path(name), given.cells, env)
    cell, step, hand = (statistics.median(column) for column in zip(*taken, strict=True))
    beyond = [whole - by_hand for whole, _, by_hand in taken]
    worst = sorted(beyond)[int(0.9 * len(beyond))]
    over = statistics.median(beyond)
    print(f"medians of {len(taken)} cells in one allocation of two nodes\n")
    print("| what | figure | beside | target |\n|---|---|---|---|")
    print(f"| a cell by srun, in all | {cell:.0f} ms | its srun {step:.0f} ms; srun by hand {hand:.0f} ms | |")
    print(f"| beyond srun by hand | {over:.0f} ms | 90 of 100 below {worst:.0f} ms | < {TARGET:.0f} ms |")
    return int(over >= TARGET)


if __name__ == "__main__":
    sys.exit(main())
