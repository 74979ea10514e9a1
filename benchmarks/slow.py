"""Whether a slowdown is caught, and nothing else: `.venv/bin/python benchmarks/slow.py --runs 10`.

Two containers send to each other over a link that `tc` limits to a known rate. One run is the baseline; then runs at
that rate and runs at 80 % of it follow in a random order, each held against it with --hetgpu-baseline and by `hetgpu
compare`. Nothing that the plugin sees tells them apart but their times. Exits with 1 unless every slow run is `slow`
and no other is. Needs a Docker engine and its base image (containers/make-base bookworm).
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASE = "hetgpu-base:bookworm"
RATE = 100.0
"""Mbit/s: so little that what else a machine does hardly matters beside it."""
MATRIX = f"""\
name: link
hardware:
  node: {{runtime: docker, image: {ROOT}/containers/cpu-ompi5, container: {{cap_add: [NET_ADMIN]}}}}
axes:
  placement: {{pair: [node, node]}}
  transport: {{ob1: {{btl: [tcp, self]}}}}
  workload: {{send_recv: {{sizes: [2M], iterations: 2, warmup: 0}}}}
"""
HOSTS = f"""\
hardware: {{node: [localhost]}}
build: {{"*": {{network: host, args: {{BASE: "{BASE}"}}}}}}
"""
SCENARIO = """\
from pathlib import Path


def test_cell(cluster, run):
    limit = ("root", "tbf", "rate", Path("rate").read_text(), "burst", "64kb", "latency", "100ms")
    for node in cluster.nodes:
        said = node.runtime.exec(("tc", "qdisc", "replace", "dev", "eth0", *limit))
        assert said.returncode == 0, said.stderr
    run()
"""


def session(folder: Path, rate: float, *options: str) -> tuple[str, dict[str, object]]:
    """Runs the cell at a rate in Mbit/s; the run's id, and the outcome that it journalled."""
    (folder / "rate").write_text(f"{rate:g}mbit")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hetgpu-matrix", "link.yaml")
    given = ("--hetgpu-inventory", "hosts.yaml", "test_link.py", *options)
    done = subprocess.run((*command, *given), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stdout + done.stderr)
    run = (folder / "reports" / "latest").resolve()
    events = [json.loads(line) for line in (run / "journal" / "main.jsonl").read_text().splitlines()]
    return run.name, next(event["outcome"] for event in reversed(events) if event["event"] == "judged")


def compared(folder: Path, before: str, after: str) -> int:
    """The exit code of `hetgpu compare`."""
    command = (sys.executable, "-m", "pytest_hetgpu.cli", "compare", before, after)
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode


def series(folder: Path, runs: int, seed: int) -> bool:
    """Prints the table; whether every run was judged as what it was."""
    for name, text in (("link.yaml", MATRIX), ("hosts.yaml", HOSTS), ("test_link.py", SCENARIO)):
        (folder / name).write_text(text)
    baseline, outcome = session(folder, RATE)
    if outcome["kind"] != "passed":
        sys.exit(f"the baseline itself: {outcome['why']}")
    print(f"seed {seed}, {RATE:g} Mbit/s; baseline busbw {busbw(outcome):.4f} GB/s\n")
    print("| planted | outcome | compare | busbw | launches | s |\n|---|---|---|---|---|---|")
    planted = [0.8] * runs + [1.0] * runs
    random.Random(seed).shuffle(planted)
    right: list[tuple[float, bool, bool]] = []
    for share in planted:
        started = time.monotonic()
        run, outcome = session(folder, RATE * share, "--hetgpu-baseline", baseline)
        took = time.monotonic() - started
        worse = compared(folder, baseline, run)
        launches = 1 + len(list((folder / "reports" / run).glob("scenarios/*/launch-*")))
        right.append((share, outcome["kind"] == ("slow" if share < 1 else "passed"), worse == (share < 1)))
        told = f"{'80 %' if share < 1 else 'nothing'} | {outcome['kind']} | {worse} | {busbw(outcome):.4f}"
        print(f"| {told} | {launches} | {took:.1f} |", flush=True)
        if not right[-1][1]:
            print(f"{outcome['why']} {outcome['notes']}", flush=True)
    caught = sum(judged for share, judged, _ in right if share < 1)
    alarms = sum(not judged for share, judged, _ in right if share == 1)
    told_apart = sum(compare for *_, compare in right)
    print(f"\ncaught {caught} of {runs}; false alarms {alarms} of {runs}; compare right in {told_apart} of {2 * runs}")
    return all(judged and compare for _, judged, compare in right)


def busbw(outcome: dict[str, object]) -> float:
    found = outcome["measurements"]
    assert isinstance(found, list)
    return float(next((one["value"] for one in found if one["metric"] == "busbw"), 0.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="runs of each kind (10)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        good = series(Path(folder), options.runs, options.seed)
    sys.exit(not good)


if __name__ == "__main__":
    main()
