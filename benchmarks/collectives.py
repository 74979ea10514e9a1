"""Our figures beside code that does nothing else, on the same ranks: `.venv/bin/python benchmarks/collectives.py`.

All-reduce: one mpirun, in which our program's loop and a bare loop of mpi4py's buffer calls take turns. Ping-pong: ours
and `mpi4py.bench pingpong`, likewise. Training: the whole of ddp_train under torchrun beside
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
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "pytest_hetgpu" / "remote"
MPIRUN = ("--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "sm,self")
ITERATIONS = {8: 2000, 1 << 20: 60, 4 << 20: 20}
FRAME = """
import argparse, json, sys, time
sys.path.insert(0, {programs!r})
import numpy
from mpi4py import MPI, bench
import harness
from allreduce import Allreduce
from send_recv import SendRecv

comm, told = MPI.COMM_WORLD, []
harness.emit_row = lambda turn, point, seconds: told.append(sum(seconds) / len(seconds))

def ours(kind, size, iterations):
    operation = kind(comm, size // 4, numpy.dtype("float32"))
    operation.fill()
    told.clear()
    options = argparse.Namespace(iterations=iterations, warmup=5)
    harness.measure(operation, harness.Point(size, "float32"), options, 0)
    return told[0] if told else 0.0
{turn}
for size, iterations in {iterations!r}:
    turns = [turn(size, iterations) for _ in range({turns})]
    if comm.Get_rank() == 0:
        print("TURNS", json.dumps([size, turns]), flush=True)
"""
ALLREDUCE = """
def turn(size, iterations):
    mine = ours(Allreduce, size, iterations)
    sent, got = numpy.ones(size // 4, "f"), numpy.empty(size // 4, "f")
    for _ in range(5):
        comm.Allreduce(sent, got)
    comm.Barrier()
    started = time.perf_counter()
    for _ in range(iterations):
        comm.Allreduce(sent, got)
    everyone = comm.gather((time.perf_counter() - started) / iterations)
    return mine, sum(everyone) / len(everyone) if everyone else 0.0
"""
PINGPONG = """
empty = numpy.empty

def theirs(size, iterations):
    loops = [word for kind in ("", "-large", "-huge") for word in ("--loop" + kind, str(iterations))]
    skips = [word for kind in ("", "-large", "-huge") for word in ("--skip" + kind, "5")]
    return bench.pingpong(comm, ["-q", "-m", str(size), "-n", str(size), *loops, *skips])[0][1]

def turn(size, iterations):
    mine, untouched = ours(SendRecv, size, iterations), theirs(size, iterations)
    numpy.empty = lambda *shape: numpy.full(*shape[:1], 7, *shape[1:])
    written = theirs(size, iterations)
    numpy.empty = empty
    return mine, untouched, written
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
    """Our loop and a bare one."""
    for size, turns in in_turn(ALLREDUCE, runs * 3):
        compared(f"all-reduce, {size} B, 2 ranks", size, turns, "a bare loop")


def pingpong(runs: int) -> None:
    """Our send_recv, mpi4py.bench as it is, and with memory that has been written.

    It allocates what it sends and never writes it, so Linux backs all of a large message by one page of zeros, which
    stays in the nearest cache: that is no message anybody sends.
    """
    for size, turns in in_turn(PINGPONG, runs * 3):
        compared(
            f"ping-pong, {size} B", size, [(mine, full) for mine, _, full in turns], "mpi4py.bench, buffers written"
        )
        compared(
            f"ping-pong, {size} B", size, [(mine, void) for mine, void, _ in turns], "mpi4py.bench as it is", owed=False
        )


def in_turn(turn: str, turns: int) -> Iterator[tuple[int, list[list[float]]]]:
    """Each size with the seconds of every turn, all measured in one job of two ranks."""
    home = stack("openmpi-5")
    source = FRAME.format(programs=str(PROGRAMS), turn=turn, iterations=list(ITERATIONS.items()), turns=turns)
    argv = (f"{home}/bin/mpirun", "-np", "2", *MPIRUN, f"{home}/bin/python", "-m", "mpi4py", "-c", source)
    for text in re.findall(r"^TURNS (.*)$", output(argv), re.MULTILINE):
        size, found = json.loads(text)
        yield size, found


def compared(what: str, size: int, pairs: Sequence[Sequence[float]], beside: str, *, owed: bool = True) -> None:
    ours, theirs = (statistics.median(column) * 1e6 for column in zip(*pairs, strict=True))
    if size < 1 << 20:
        found, target = f"{statistics.median(a - b for a, b in pairs) * 1e6:+.2f} us", "within 5 us"
    else:
        found, target = f"{(statistics.median(a / b for a, b in pairs) - 1) * 100:+.1f} %", "within 3 %"
    row(what, f"{ours:.2f} us", f"{beside}: {theirs:.2f} us", found, target if owed else "")


def training(runs: int) -> None:
    """ddp_train from start to end, and the same training without anything of ours."""
    python = str(stack("openmpi-5-torch", "torch") / "bin" / "python")
    bare = Path(os.environ.get("TMPDIR", "/tmp")) / f"hetgpu-bare-ddp-{os.getpid()}.py"
    bare.write_text(BARE_DDP)
    torchrun = (python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "0")
    mine = (python, str(PROGRAMS / "torchruns.py"), "-np", "2", "-H", "localhost", *torchrun, "--tee", "3")
    try:
        ours_too = (*mine, str(PROGRAMS / "ddp_train.py"), "--backend", "gloo")
        pairs = []
        for turn in range(runs):
            # Who goes first finds the machine as the other left it: they change places.
            both = (ours_too, (*torchrun, str(bare)))
            took = [timed(one) for one in (both if turn % 2 else both[::-1])]
            pairs.append((took[0], took[1]) if turn % 2 else (took[1], took[0]))
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
