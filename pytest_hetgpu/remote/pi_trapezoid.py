"""The first distributed program: pi as an integral by the trapezoid rule. Each rank computes a part; all get the sum.

The integral of 4 / (1 + x^2) from 0 to 1 is pi. The rule's error is at most h^2 / 12 times the largest second
derivative, with h = 1 / intervals. That derivative is 8 (at x = 0).
"""

from __future__ import annotations

import argparse
import math
import time

import torch
import torch.distributed as dist
from records import SweepPoint, WrongElements, emit, emit_checks, emit_wrong, now
from torch_world import ProcessGroup, join, leave

ROUNDING = 1e-12
POINT = SweepPoint(8, "float64")


def main() -> None:
    """Integrate, sum, and compare with pi on every rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--memory", choices=("host", "device"), default="host")
    parser.add_argument("--intervals", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--scaling", choices=("weak", "strong"), help="intervals of each rank, or of all")
    options = parser.parse_args()
    world = join(options.backend, options.memory)
    intervals = options.intervals * (world.ranks if options.scaling == "weak" else 1)
    wrong = sum(integrate(world, intervals, repeat) for repeat in range(options.repeats))
    emit_checks(world.rank, {POINT: wrong})
    leave(world)


def integrate(world: ProcessGroup, intervals: int, repeat: int) -> int:
    """Compute and time the whole integral once. Report it, and return 1 if it is not pi, else 0."""
    world.barrier()
    started = time.perf_counter()
    total = part(world, intervals)
    dist.all_reduce(total)
    found, seconds = float(total), time.perf_counter() - started
    bound = 8 / 12 / intervals**2 + ROUNDING
    wrong = int(not abs(found - math.pi) <= bound)
    if world.rank == 0:
        told = {**POINT.fields(), "ranks": world.ranks, "repeat": repeat}
        emit(t="row", op="pi_trapezoid", **told, iterations=1, seconds=seconds, at=now())
        emit(t="figure", metric="intervals", value=intervals / seconds, unit="1/s", **told)
    if wrong:
        wanted = f"{math.pi!r} within {bound:.1e}"
        emit_wrong(world.rank, POINT, repeat, WrongElements("", 1, 1, 0, wanted, repr(found)))
    return wrong


def part(world: ProcessGroup, intervals: int) -> torch.Tensor:
    """Integrate the intervals of this rank: neighbouring ones, in equal shares up to one interval."""
    low, high = (intervals * rank // world.ranks for rank in (world.rank, world.rank + 1))
    at = torch.arange(low, high + 1, dtype=torch.float64, device=world.device) / intervals
    heights = 4 / (1 + at * at)
    both_ends = (heights[0] + heights[-1]) / 2 if high > low else heights[0] * 0
    inside = heights[1:-1].sum() if high > low else heights[0] * 0
    return (inside + both_ends).reshape(1) / intervals


if __name__ == "__main__":
    main()
