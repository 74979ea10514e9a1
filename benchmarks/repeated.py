"""What it costs to read large logs of failures, beside `grep -c`: `.venv/bin/python benchmarks/repeated.py LOG...`.

Each log is repeated up to `--megabytes`. Every copy has new times, pids, addresses, hosts, ranks and numbers. So no
line with a number repeats verbatim. It prints 1e6 bytes a second of one core, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
EXPLAIN = [sys.executable, "-m", "pytest_hetgpu.cli", "explain", "--json"]
LEAST = 60.0
"""1e6 bytes a second that every log has to reach."""
_VARYING = re.compile(rb"(?<=0x)[0-9a-f]{4,}|\d{2,}|(?<=[Rr]ank )\d|(?<=node)\d|(?<=^\[)\d(?=\])", re.MULTILINE)
_HEXADECIMAL = b"0123456789abcdef"


class Cost(NamedTuple):
    """Cost of one process: 1e6 bytes a second of processor time, and its peak memory in 1e6 bytes."""

    speed: float
    memory: float


def repeated(log: Path, target: Path, size: int, seed: int = 1) -> Path:
    """Write copies of a log to `target` until it has `size` bytes."""
    text = log.read_bytes()
    text += b"" if text.endswith(b"\n") else b"\n"
    chance = random.Random(seed)
    written = 0
    with target.open("wb") as file:
        while written < size:
            written += file.write(text if not written else _VARYING.sub(lambda found: _other(found[0], chance), text))
    return target


def _other(number: bytes, chance: random.Random) -> bytes:
    """Return a number of the same kind and length."""
    digits = _HEXADECIMAL if not number.isdigit() else _HEXADECIMAL[:10]
    return bytes(chance.choices(digits, k=len(number)))


def cost(command: list[str], size: int) -> Cost:
    """Run a command to its end."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = os.open(os.devnull, os.O_WRONLY)
    pid = os.posix_spawnp(command[0], command, environ, file_actions=[(os.POSIX_SPAWN_DUP2, out, 1)])
    os.close(out)
    _, _, usage = os.wait4(pid, 0)
    return Cost(size / 1e6 / max(usage.ru_utime + usage.ru_stime, 1e-3), usage.ru_maxrss * 1024 / 1e6)


def costs(logs: Sequence[Path], size: int) -> Iterator[tuple[Path, Cost, Cost]]:
    """Yield each log with the cost of explaining it and of `grep -c`, repeated to `size` bytes."""
    with tempfile.TemporaryDirectory(prefix="hetgpu-") as folder:
        for log in logs:
            large = repeated(log, Path(folder) / "large.log", size)
            written = large.stat().st_size
            yield log, cost([*EXPLAIN, str(large)], written), cost(["grep", "-ac", "rror", str(large)], written)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG")
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--least", type=float, default=0.0, metavar="MB/S", help="exit with 1 if a log is slower")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="print the N slowest only")
    options = parser.parse_args()
    began = time.monotonic()
    found = sorted(costs(options.logs, options.megabytes * 1_000_000), key=lambda one: one[1].speed)
    for log, ours, theirs in found[: options.slowest or None]:
        print(f"{log.name:24} {ours.speed:7.1f} MB/s {ours.memory:6.0f} MB   grep -c {theirs.speed:6.0f} MB/s")
    slow = sum(ours.speed < options.least for _, ours, _ in found)
    took = time.monotonic() - began
    print(f"{len(found)} logs of {options.megabytes} MB in {took:.0f} s, {slow} under {options.least:g} MB/s")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
