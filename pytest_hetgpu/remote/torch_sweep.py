"""One operation of torch.distributed over message sizes and types, timed and verified.

    torch_sweep.py --operation allreduce --backend gloo --sizes 8,1024 --dtypes float32

takes sizes, dtypes, iterations, warm-up and repeats as `harness.py` does, verifies every iteration as that does, and
writes records (see `records.py`).
"""

from __future__ import annotations

import argparse
import itertools
import sys
from typing import Dict, Iterator, List, Sequence

import torch
import torch.distributed as dist
from iterations import Steps, measure
from records import SweepPoint, Timing, WrongElements, emit_checks, emit_row, emit_wrong, positive_numbers
from torch_operations import OPERATIONS, PERIODS, TorchOperation, highest
from torch_world import ProcessGroup, join, leave, parse_dtype


def main() -> None:
    """Run the operation at every point of the command line, and report."""
    options = arguments()
    world = join(options.backend, options.memory)
    check_world(options, world.ranks)
    checks: Dict[SweepPoint, int] = {}
    for repeat, point in itertools.product(range(options.repeats), list(points(options))):
        _, dtype = parse_dtype("uint8" if point.dtype == "none" else point.dtype)
        operation = OPERATIONS[options.operation](world, point.size // dtype.itemsize, dtype)
        checks[point] = checks.get(point, 0) + run_point(operation, point, options, repeat)
    emit_checks(world.rank, checks)
    leave(world)


def arguments() -> argparse.Namespace:
    """Parse the command line (see the module's docstring); exit if it is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--operation", choices=tuple(OPERATIONS), required=True)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--memory", choices=("host", "device"), default="host")
    parser.add_argument("--sizes", type=positive_numbers, default=[])
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    if options.iterations < 1 or options.warmup < 0:
        parser.error(f"{options.iterations} iterations after {options.warmup} of warm-up: at least 1 after 0")
    if OPERATIONS[options.operation].sweeps and not options.sizes:
        parser.error(f"{options.operation} needs --sizes")
    return options


def points(options: argparse.Namespace) -> Iterator[SweepPoint]:
    """Yield all points of a run; an operation without data has one of 0 bytes."""
    kind = OPERATIONS[options.operation]
    if not kind.sweeps:
        yield SweepPoint(0, "none")
        return
    for size, dtype in itertools.product(options.sizes, options.dtypes.split(",")):
        yield SweepPoint(size, dtype, "in" if kind.reduces else "")


def check_world(options: argparse.Namespace, ranks: int) -> None:
    """Exit if a world of `ranks` ranks cannot run the request."""
    kind = OPERATIONS[options.operation]
    if kind.paired and ranks % 2:
        sys.exit(f"{kind.name} works between pairs of ranks: it needs an even number of them, not {ranks}")
    for size, (name, dtype) in itertools.product(options.sizes, map(parse_dtype, options.dtypes.split(","))):
        if size < dtype.itemsize:
            sys.exit(f"size {size} holds no element of {name} ({dtype.itemsize} bytes)")
        if kind.splits and size % (dtype.itemsize * ranks):
            sys.exit(f"{kind.name} cannot divide {size} bytes of {name} among {ranks} ranks")
        if "reduce" in kind.name and ranks * min(PERIODS) > highest(dtype):
            sys.exit(f"{kind.name} cannot sum {name} of {ranks} ranks: more than {highest(dtype)} overflow")


def run_point(operation: TorchOperation, point: SweepPoint, options: argparse.Namespace, repeat: int) -> int:
    """Time the operation, and verify every result. Return this rank's number of wrong elements."""
    world = operation.world
    found: List[WrongElements] = []
    steps = Steps(fill, release, world.meet, world.synchronize, wrong_elements)
    seconds = measure(operation, options, repeat, found, steps)
    everyone = times_of_all(world, seconds / options.iterations / operation.per_step)
    if world.rank == 0:
        emit_row(Timing(operation.name, world.ranks, options.iterations, repeat), point, everyone)
    if not operation.sweeps:
        operation.run_verified()
        found += wrong_elements([operation])
    if found:
        emit_wrong(operation.rank, point, repeat, found[0])
    return sum(wrong.count for wrong in found)


def release(_: Sequence[TorchOperation]) -> None:
    """Do nothing: tensors are not guarded."""


def fill(operations: Sequence[TorchOperation]) -> None:
    """Fill the tensors of operations."""
    for one in operations:
        one.fill()


def times_of_all(world: ProcessGroup, mine: float) -> List[float]:
    """Gather one number of every rank, on every rank."""
    found = [torch.zeros(1, dtype=torch.float64, device=world.exchange_device) for _ in range(world.ranks)]
    dist.all_gather(found, torch.full_like(found[0], mine))
    return [float(one) for one in found]


def wrong_elements(operations: Sequence[TorchOperation], first: int = 0) -> Iterator[WrongElements]:
    """Compare every element of all tensors with its expected value. Operations are numbered from `first`."""
    for iteration, operation in enumerate(operations, first):
        for buffer, (got, wanted) in operation.comparisons().items():
            if torch.equal(got, wanted):
                continue
            differs = got != wanted
            count, index = int(differs.sum()), int(differs.to(torch.uint8).argmax())
            values = (wanted[index].item(), got[index].item())
            yield WrongElements(buffer, count, got.numel(), index, *values, iteration=iteration)


if __name__ == "__main__":
    main()
