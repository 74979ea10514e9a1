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
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
EXPLAIN = [sys.executable, "-m", "pytest_hetgpu.cli", "explain", "--json"]
MANY = 1_000_000_000
SOME = 200_000_000
# In processor time, for a log of some 300 kB: so many times what Python takes to start, on a busy machine too.
SLOWEST_START = 15
# As users have it: with bytecode kept.
ENVIRON = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
ALLOW = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "UCX_LOG_LEVEL": "debug"}


def debug_log(stack: Path) -> bytes:
    """What UCX logs at level debug while two ranks exchange messages."""
    program = ROOT / "pytest_hetgpu" / "remote" / "allreduce.py"
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


class Cost(NamedTuple):
    """What a command took: seconds on the clock and of the processor, and its peak memory in MB."""

    wall: float
    cpu: float
    memory: float


def measured(command: Sequence[str]) -> Cost:
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, env=ENVIRON)
    assert child.stdout
    child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    return Cost(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000)


def beside_grep(log: Path, runs: int) -> None:
    taken = [(measured([*EXPLAIN, str(log)]), measured(["grep", "-c", "UCX  ERROR", str(log)])) for _ in range(runs)]
    ours, theirs = (statistics.median(run[side].wall for run in taken) for side in (0, 1))
    memory = max(run[0].memory for run in taken)
    size = log.stat().st_size / 1e6
    what = f"UCX debug log of {size:.0f} MB"
    print(
        f"| {what} | {size / ours:.0f} MB/s, {memory:.0f} MB | `grep -c` {size / theirs:.0f} MB/s | 60 MB/s, 100 MB |"
    )


def small(log: Path, runs: int) -> None:
    measured([*EXPLAIN, str(log)])
    taken = [(measured([*EXPLAIN, str(log)]), measured([sys.executable, "-c", "pass"])) for _ in range(runs)]
    wall, cpu, python_wall, python_cpu = (
        statistics.median(column) * 1000 for column in zip(*((*a[:2], *b[:2]) for a, b in taken), strict=True)
    )
    figures = f"{wall:.0f} ms, {cpu:.0f} ms of the processor's"
    what = f"log of {log.stat().st_size / 1e3:.0f} kB, in all"
    print(f"| {what} | {figures} | Python alone {python_wall:.0f} and {python_cpu:.0f} ms | < 300 ms |", flush=True)
    if cpu > SLOWEST_START * python_cpu:
        sys.exit(f"{what}: {cpu / python_cpu:.0f} times Python alone, not {SLOWEST_START}: see `python -X importtime`")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="the small log alone")
    options = parser.parse_args()
    stacks = os.environ.get("HETGPU_STACKS") or str(ROOT / ".stacks")
    log = debug_log(Path(stacks.split(os.pathsep)[0]) / "openmpi-5")
    print("| what | figure | beside | target |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        small(enlarged(log, Path(folder) / "small.log", 1), options.runs * 2)
        if options.small:
            return
        beside_grep(enlarged(log, Path(folder) / "some.log", SOME), options.runs)
        beside_grep(enlarged(log, Path(folder) / "many.log", MANY), 1)


if __name__ == "__main__":
    main()
