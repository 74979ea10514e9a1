"""A hundred cells over eight hosts, by our scheduler and by xdist's: `.venv/bin/python benchmarks/scheduler.py`.

Hosts are names, and a cell's test sleeps instead of starting a job, so that no lease keeps two of them apart: all
else is a real session with real workers. What it takes, from the first cell's start to the last one's end, is held
against the bound that no order can beat: the seconds of the host with most to do. The tests write down when they were
on which hosts, and whether two were on one host at once is read from that.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

LONGEST = 1800  # seconds; a session that does not end is an error
HOSTS = [f"host{number}" for number in range(8)]
CELLS = """\
import json
import time
from pathlib import Path


def test_cell(scenario):
    begin = time.time()
    time.sleep(float(scenario.value("takes").partition("-")[2]) / 100)
    Path("spans", scenario.id).write_text(json.dumps([begin, time.time(), scenario.value("placement")]))
"""


def matrix(folder: Path, cells: int, seed: int, least: float, most: float) -> dict[str, set[str]]:
    """Cells of random lengths (seconds) on sixteen placements of one to four hosts, which it gives."""
    given = random.Random(seed)
    placements = [given.sample(HOSTS, given.choice((1, 1, 2, 2, 4))) for _ in range(16)]
    takes = [f"t{one}-{round(100 * given.uniform(least, most))}" for one in range(-(-cells // 16))]
    lines = ["name: farm", "hardware:", *(f"  {host}: {{platform: cpu, runtime: ssh}}" for host in HOSTS), "axes:"]
    lines += ["  placement:", *(f"    p{index}: [{', '.join(hosts)}]" for index, hosts in enumerate(placements))]
    lines += ["  transport: {ob1: {family: ob1}}", "  workload: {barrier: {}}", "  takes:"]
    lines += [f"    {one}: {{}}" for one in takes]
    left_out = 16 * len(takes) - cells
    lines += ["exclude:"] * bool(left_out)
    lines += [f"  - {{placement: p{15 - index}, takes: {takes[-1]}, reason: enough}}" for index in range(left_out)]
    (folder / "farm.yaml").write_text("\n".join(lines) + "\n")
    (folder / "hosts.yaml").write_text("hardware:\n" + "".join(f"  {host}: [{host}]\n" for host in HOSTS))
    (folder / "test_farm.py").write_text(CELLS)
    return {f"p{index}": set(hosts) for index, hosts in enumerate(placements)}


def session(folder: Path, workers: int, *options: str) -> list[tuple[float, float, str]]:
    """One run: when each cell started and ended, and its placement."""
    spans = folder / "spans"
    spans.mkdir(exist_ok=True)
    for old in spans.iterdir():
        old.unlink()
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hetgpu-matrix", "farm.yaml")
    given = ("--hetgpu-inventory", "hosts.yaml", "-n", str(workers), "test_farm.py", *options)
    done = subprocess.run((*command, *given), cwd=folder, capture_output=True, text=True, check=False, timeout=LONGEST)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return sorted(tuple(json.loads(one.read_text())) for one in spans.iterdir())


def judged(spans: list[tuple[float, float, str]], placements: dict[str, set[str]]) -> tuple[int, float, float, int]:
    """Cells, seconds they took together, the bound, and how often two were on one host."""
    by_host = {host: [span for span in spans if host in placements[span[2]]] for host in HOSTS}
    bound = max(sum(end - begin for begin, end, _ in held) for held in by_host.values())
    twice = sum(later < end for held in by_host.values() for (_, end, _), (later, _, _) in pairwise(held))
    return len(spans), max(end for _, end, _ in spans) - spans[0][0], bound, twice


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, nargs=2, default=(1.0, 4.0), metavar=("LEAST", "MOST"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        placements = matrix(folder, given.cells, given.seed, *given.seconds)
        print(f"{given.cells} cells, {len(HOSTS)} hosts, {given.workers} workers, seed {given.seed}")
        print(f"{'distribution':28} {'cells':>5} {'seconds':>8} {'bound':>7} {'over it':>8} {'double booked':>14}")
        missed = False
        for label, options in (("xdist's worksteal", ("--dist", "worksteal")), ("ours", ())):
            cells, took, bound, twice = judged(session(folder, given.workers, *options), placements)
            print(f"{label:28} {cells:5} {took:8.1f} {bound:7.1f} {took / bound - 1:8.1%} {twice:14}", flush=True)
            missed = twice > 0 or took > 1.1 * bound
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
