"""What it costs to verify each timed iteration: `.venv/bin/python benchmarks/ranks/verified.py --before FOLDER STACK`.

FOLDER holds the rank programs (`pytest_hetgpu/remote`) of another checkout. Both run in turn on the prefix STACK. It
prints the least and the median microseconds of an operation per size, and the seconds of whole runs.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from pathlib import Path

from pytest_hetgpu.analysis.logs.records import RecordReader

HERE = Path(__file__).resolve().parents[2] / "pytest_hetgpu" / "remote"
SIZES = "8,1024,16384,65536,262144,1048576,8388608"


def main() -> None:
    """Run both versions of each program in turn, and print their times side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stack", type=Path)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--programs", default="allreduce,broadcast,send_recv")
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--launches", type=int, default=5)
    options = parser.parse_args()
    folders = {"before": options.before, "after": HERE}
    for program in options.programs.split(","):
        times: dict[str, dict[int, list[float]]] = {name: {} for name in folders}
        whole = dict.fromkeys(folders, 0.0)
        for launch in range(options.launches):
            for name in sorted(folders, reverse=bool(launch % 2)):
                started = time.perf_counter()
                for size, seconds in rows(options.stack, folders[name] / f"{program}.py", options.ranks):
                    times[name].setdefault(size, []).append(seconds * 1e6)
                whole[name] += time.perf_counter() - started
        print(program, "  ".join(f"{name} {seconds:.1f} s" for name, seconds in whole.items()))
        for size in times["before"]:
            both = (f"{name} {min(one[size]):.1f} {statistics.median(one[size]):.1f} us" for name, one in times.items())
            print(f"  {size:8d} B  {'  '.join(both)}", flush=True)


def rows(stack: Path, program: Path, ranks: str) -> list[tuple[int, float]]:
    """Run a program; return sizes and seconds of its operation, one for each repeat."""
    launcher = (f"{stack}/bin/mpirun", "--allow-run-as-root", "--oversubscribe", "-np", ranks)
    argv = (*launcher, f"{stack}/bin/python", "-m", "mpi4py", str(program), "--sizes", SIZES, "--repeats", "5")
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    reader = RecordReader()
    for line in done.stdout.splitlines():
        reader.feed(line)
    return [(row.point.size, row.seconds) for row in reader.finish().rows]


if __name__ == "__main__":
    main()
