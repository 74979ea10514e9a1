"""Our figures beside code that does nothing else, on the same ranks: `.venv/bin/python benchmarks/collectives.py`.

All-reduce: one mpirun, in which our program's loop and a bare loop of mpi4py's buffer calls take turns. Ping-pong: ours
and `python -m mpi4py.bench pingpong`, launch by launch in turn. Training: the whole of ddp_train under torchrun beside
the same training as a bare script. Medians; ratios and differences are those of each turn. `--only NAME` runs one part.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "pytest_hetgpu" / "programs"
MPIRUN = ("--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "sm,self")
SIZES = (8, 1 << 20, 4 << 20)
ITERATIONS = {8: 2000, 1 << 20: 60, 4 << 20: 20}
TURNS = """
import argparse, json, statistics, sys, time
sys.path.insert(0, {programs!r})
import numpy as np
from mpi4py import MPI
import harness
from allreduce import Allreduce

comm, told = MPI.COMM_WORLD, []
harness.emit = lambda **record: told.append(record)

def ours(size, iterations):
    operation = Allreduce(comm, size // 4, np.dtype("float32"))
    operation.fill()
    told.clear()
    options = argparse.Namespace(iterations=iterations, warmup=5)
    harness.measure(operation, harness.Point(size, "float32"), options, 0)
    return told[0]["seconds"] if told else 0.0

def bare(size, iterations):
    sent, got = np.ones(size // 4, "f"), np.empty(size // 4, "f")
    for _ in range(5):
        comm.Allreduce(sent, got)
    comm.Barrier()
    started = time.perf_counter()
    for _ in range(iterations):
        comm.Allreduce(sent, got)
    mine = (time.perf_counter() - started) / iterations
    everyone = comm.gather(mine)
    return sum(everyone) / len(everyone) if everyone else 0.0

for size, iterations in {iterations!r}:
    pairs = [(ours(size, iterations), bare(size, iterations)) for _ in range({turns})]
    if comm.Get_rank() == 0:
        print("TURNS", json.dumps([size, pairs]), flush=True)
"""
BARE_DDP = """
import os, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
dice = torch.Generator().manual_seed(1)
inputs = torch.randn(4096, 32, generator=dice)
targets = torch.tanh(inputs @ torch.randn(32, 1, generator=dice) / 32**0.5)
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(3):
    for step in range(4096 // (64 * ranks)):
        low = step * 64 * ranks + rank * 64
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs[low:low + 64]), targets[low:low + 64])
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
"""


def stack(*names: str) -> Path:
    """The first of these stacks that is here."""
    places = [*os.environ.get("HETGPU_STACKS", "").split(os.pathsep), str(ROOT / ".stacks")]
    for name in names:
        for place in filter(None, places):
            if (Path(place) / name / "bin" / "python").exists():
                return Path(place) / name
    sys.exit(
        f"no stack {' or '.join(names)} in {', '.join(filter(None, places))}: python3 bootstrap.py stack {names[0]}"
    )


def output(argv: Sequence[str]) -> str:
    """What a command prints; the benchmark ends where it fails."""
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    env = {**os.environ, **allowed, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(argv[:6])} ... ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def row(what: str, ours: str, beside: str, found: str, target: str) -> None:
    print(f"| {what} | {ours} | {beside} | {found} | {target} |", flush=True)


def allreduce(runs: int) -> None:
    """Our loop and a bare one in turn, in one job."""
    home = stack("openmpi-5")
    source = TURNS.format(programs=str(PROGRAMS), iterations=list(ITERATIONS.items()), turns=runs * 3)
    argv = (f"{home}/bin/mpirun", "-np", "2", *MPIRUN, f"{home}/bin/python", "-m", "mpi4py", "-c", source)
    for text in re.findall(r"^TURNS (.*)$", output(argv), re.MULTILINE):
        size, pairs = json.loads(text)
        compared(f"all-reduce, {size} B, 2 ranks", size, pairs, "a bare loop")


def pingpong(runs: int) -> None:
    """Our send_recv and mpi4py.bench, launch by launch."""
    home = stack("openmpi-5")
    start = (f"{home}/bin/mpirun", "-np", "2", *MPIRUN, f"{home}/bin/python", "-m")
    for size in SIZES:
        pairs = []
        for _ in range(runs):
            many = str(ITERATIONS[size])
            ours = output((*start, "mpi4py", f"{PROGRAMS}/send_recv.py", "--sizes", str(size), "--iterations", many))
            found = re.search(r'"t":"row".*?"seconds":([\d.e-]+)', ours)
            loops = (word for kind in ("", "-large", "-huge") for word in (f"--loop{kind}", many))
            bench = output(
                (*start, "mpi4py.bench", "pingpong", "-m", str(size), "-n", str(size), *loops, "--no-header")
            )
            beside = re.search(r"\|\s*([\d.e+-]+)\s", bench)
            if not (found and beside):
                sys.exit(f"no figure in\n{ours}\n{bench}")
            # mpi4py.bench prints the time of one way.
            pairs.append((float(found[1]), float(beside[1])))
        compared(f"ping-pong, {size} B", size, pairs, "mpi4py.bench")


def compared(what: str, size: int, pairs: Sequence[tuple[float, float]], beside: str) -> None:
    ours, theirs = (statistics.median(column) * 1e6 for column in zip(*pairs, strict=True))
    if size < 1 << 20:
        found, target = f"{statistics.median(a - b for a, b in pairs) * 1e6:+.2f} us", "within 5 us"
    else:
        found, target = f"{(statistics.median(a / b for a, b in pairs) - 1) * 100:+.1f} %", "within 3 %"
    row(what, f"{ours:.2f} us", f"{beside}: {theirs:.2f} us", found, target)


def training(runs: int) -> None:
    """ddp_train from start to end, and the same training without anything of ours."""
    python = str(stack("openmpi-5-torch", "torch") / "bin" / "python")
    bare = Path(os.environ.get("TMPDIR", "/tmp")) / f"hetgpu-bare-ddp-{os.getpid()}.py"
    bare.write_text(BARE_DDP)
    torchrun = (python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "0")
    mine = (python, str(PROGRAMS / "torchruns.py"), "-np", "2", "-H", "localhost", *torchrun, "--tee", "3")
    try:
        ours_too = (*mine, str(PROGRAMS / "ddp_train.py"), "--backend", "gloo")
        pairs = [(timed(ours_too), timed((*torchrun, str(bare)))) for _ in range(runs)]
    finally:
        bare.unlink()
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    row(
        "ddp_train, 2 ranks, from start to end",
        f"{ours:.2f} s",
        f"a bare script: {theirs:.2f} s",
        f"{(ratio - 1) * 100:+.1f} %",
        "under 5 %",
    )


def timed(argv: Sequence[str]) -> float:
    started = time.perf_counter()
    output(argv)
    return time.perf_counter() - started


def main() -> None:
    parts = {part.__name__: part for part in (allreduce, pingpong, training)}
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=tuple(parts))
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    row("what", "ours", "beside", "difference", "target")
    print("|---|---|---|---|---|")
    for name, part in parts.items():
        if options.only in (None, name):
            part(options.runs)


if __name__ == "__main__":
    main()
