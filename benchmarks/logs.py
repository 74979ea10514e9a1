"""What reading a log costs, beside `grep -c` on the same file: `.venv/bin/python benchmarks/logs.py`.

The log is a real one: the debug output of UCX under Open MPI (stack `openmpi-5`), repeated to its size. Medians of
alternating runs; on a busy machine trust the ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXPLAIN = [sys.executable, "-m", "pytest_hetgpu.cli", "explain", "--json"]
MANY = 1_000_000_000
SOME = 200_000_000
ALLOW = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "UCX_LOG_LEVEL": "debug"}


def debug_log(stack: Path) -> bytes:
    """What UCX logs at level debug while two ranks exchange messages."""
    program = ROOT / "pytest_hetgpu" / "programs" / "allreduce.py"
    mca = ("pml", "ucx"), ("opal_common_ucx_tls", "any"), ("opal_common_ucx_devices", "any")
    command = [str(stack / "bin" / "mpirun"), "-np", "2", *(word for pair in mca for word in ("--mca", *pair))]
    command += [str(stack / "bin" / "python"), "-m", "mpi4py", str(program)]
    command += ["--sizes", "8,1024", "--dtypes", "float32", "--iterations", "5", "--warmup", "1"]
    done = subprocess.run(command, env={**os.environ, **ALLOW, "UCX_TLS": "tcp,self"}, capture_output=True, check=False)
    if done.returncode or b"UCX  DEBUG" not in done.stdout:
        sys.exit(f"no debug log of UCX could be made ({done.returncode})\n{done.stderr.decode()[-2000:]}")
    return done.stdout


def enlarged(log: bytes, path: Path, size: int) -> Path:
    """A file of about that many bytes."""
    with path.open("wb") as file:
        for _ in range(max(1, size // len(log))):
            file.write(log)
    return path


def measured(command: Sequence[str]) -> tuple[float, float]:
    """Seconds of a command, and its peak memory in MB."""
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT)
    assert child.stdout
    child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    return time.perf_counter() - started, usage.ru_maxrss / 1000


def beside_grep(log: Path, runs: int) -> None:
    taken = [(measured([*EXPLAIN, str(log)]), measured(["grep", "-c", "UCX  ERROR", str(log)])) for _ in range(runs)]
    ours, theirs = (statistics.median(run[side][0] for run in taken) for side in (0, 1))
    memory = max(run[0][1] for run in taken)
    size = log.stat().st_size / 1e6
    what = f"UCX debug log of {size:.0f} MB"
    print(
        f"| {what} | {size / ours:.0f} MB/s, {memory:.0f} MB | `grep -c` {size / theirs:.0f} MB/s | 60 MB/s, 100 MB |"
    )


def small(log: Path, runs: int) -> None:
    taken = [(measured([*EXPLAIN, str(log)])[0], measured([sys.executable, "-c", "pass"])[0]) for _ in range(runs)]
    ours, python = (statistics.median(run[side] for run in taken) * 1000 for side in (0, 1))
    size = log.stat().st_size / 1e3
    print(f"| log of {size:.0f} kB, in all | {ours:.0f} ms | Python alone {python:.0f} ms | 300 ms |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    stacks = os.environ.get("HETGPU_STACKS") or str(ROOT / ".stacks")
    log = debug_log(Path(stacks.split(os.pathsep)[0]) / "openmpi-5")
    print("| what | figure | beside | target |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        small(enlarged(log, Path(folder) / "small.log", 1), options.runs * 2)
        beside_grep(enlarged(log, Path(folder) / "some.log", SOME), options.runs)
        beside_grep(enlarged(log, Path(folder) / "many.log", MANY), 1)


if __name__ == "__main__":
    main()
