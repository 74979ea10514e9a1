"""The frame of rank programs: arguments, greeting, timing, verification, records.

It runs without the rest of this package: it needs Python 3.8, mpi4py and numpy only. Start a program with `python -m
mpi4py PROGRAM.py ARGS`. Then an uncaught error of one rank ends the whole job, instead of leaving the others waiting
forever. A program describes one `MpiOperation` and passes it to `main`, which reads

    --sizes 8,1024       bytes of a point; it has size // itemsize elements
    --dtypes float32     element types, by their numpy names
    --in-place false     or true, or both: each point twice
    --memory host        or guarded, device, managed (see `memory.py`)
    --iterations 20      timed iterations
    --warmup 5           untimed ones before them on the first visit of a point; one later
    --repeats 1          passes over all points

and writes records (see `records.py`). The result of every timed iteration is verified, outside the timed part: a wrong
element of one iteration would be overwritten by the next.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import itertools
import os
import platform
import sys
from typing import Any, Dict, Iterator, List, Sequence, Type

import cores
import mpi4py
import numpy as np
from accelerator import DriverDevice, open_device
from iterations import Steps, measure
from memory import KINDS, ON_DEVICE, DeviceMemory, GuardedMemory, ManagedMemory, Memory, same_bytes

LEAVES_CORE = cores.prepare()
# The device must be selected before the import initialises MPI: a device-aware MPI queries it at that time.
DEVICE = open_device() if {*sys.argv} & {*ON_DEVICE} else None

from mpi4py import MPI  # noqa: E402
from operations import PERIODS, ROOT, MpiOperation, MpiReduction, highest, pattern  # noqa: E402
from records import (  # noqa: E402
    PLACES,
    SweepPoint,
    Timing,
    WrongElements,
    emit,
    emit_checks,
    emit_row,
    emit_wrong,
    library_path,
    now,
    positive_numbers,
    version_line,
)

__all__ = ["MPI", "ROOT", "MpiOperation", "MpiReduction", "main", "pattern"]


def main(kind: Type[MpiOperation]) -> None:
    """Run an operation at every point of the command line, and report."""
    options = arguments(kind)
    if not (LEAVES_CORE or "Open MPI" in MPI.Get_library_version()):
        # Without a core file and a handler of MPI (Open MPI has one), these frames are better than none.
        faulthandler.enable()
    comm = MPI.COMM_WORLD
    emit_hello(comm)
    check_world(kind, comm.Get_size(), options)
    checks: Dict[SweepPoint, int] = {}
    for repeat, point in itertools.product(range(options.repeats if kind.timed else 1), list(points(kind, options))):
        dtype = np.dtype(np.uint8 if point.dtype == "none" else point.dtype)
        count = point.size // dtype.itemsize
        room = make_memory(options.memory)
        operation = kind(comm, count, dtype, in_place=bool(point.place), room=room)
        checks[point] = checks.get(point, 0) + run_point(operation, point, options, repeat)
        room.release()
    emit_checks(comm.Get_rank(), checks)
    if DEVICE:
        emit_device(comm.Get_rank(), DEVICE)
    emit(t="done", rank=comm.Get_rank(), at=now())


def make_memory(name: str) -> Memory:
    """Return the memory of this kind for the data of one operation."""
    if name in ON_DEVICE:
        assert DEVICE
        return ManagedMemory(DEVICE) if name == "managed" else DeviceMemory(DEVICE)
    return GuardedMemory() if name == "guarded" else Memory()


def emit_device(rank: int, device: DriverDevice) -> None:
    """Report the device of this rank and its peak memory."""
    emit(
        t="device",
        rank=rank,
        index=device.index,
        name=device.name,
        arch=device.arch,
        memory=device.memory,
        peak=device.peak,
    )


def points(kind: Type[MpiOperation], options: argparse.Namespace) -> Iterator[SweepPoint]:
    """Yield all points of a run; an operation without data has one of 0 bytes."""
    if not kind.sweeps:
        yield SweepPoint(0, "none")
        return
    for size, dtype, place in itertools.product(options.sizes, options.dtypes, PLACES[options.in_place]):
        yield SweepPoint(size, dtype.name, place)


def arguments(kind: Type[MpiOperation]) -> argparse.Namespace:
    """Parse the command line (see the module's docstring); exit if it is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=positive_numbers, required=kind.sweeps, default=[])
    parser.add_argument("--dtypes", type=element_types, default="float32")
    parser.add_argument("--in-place", choices=tuple(PLACES) if kind.has_in_place else ("false",), default="false")
    parser.add_argument("--memory", choices=KINDS, default=kind.memory)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    if options.iterations < 1 or options.warmup < 0:
        parser.error(f"{options.iterations} iterations after {options.warmup} of warm-up: at least 1 after 0")
    if options.repeats < 1:
        parser.error(f"{options.repeats} repeats: at least 1")
    for size, dtype in itertools.product(options.sizes, options.dtypes):
        if size < dtype.itemsize:
            parser.error(f"size {size} holds no element of {dtype.name} ({dtype.itemsize} bytes)")
    return options


def check_world(kind: Type[MpiOperation], ranks: int, options: argparse.Namespace) -> None:
    """Exit if a world of `ranks` ranks cannot run the request."""
    if kind.paired and ranks % 2:
        sys.exit(f"{kind.name} works between pairs of ranks: it needs an even number of them, not {ranks}")
    for size, dtype in itertools.product(options.sizes, options.dtypes):
        if kind.splits and size % (dtype.itemsize * ranks):
            sys.exit(f"{kind.name} cannot divide {size} bytes of {dtype.name} among {ranks} ranks")
        if issubclass(kind, MpiReduction) and dtype == np.float16:
            sys.exit(f"{kind.name} cannot sum {dtype.name}: MPI has no such type")
        if issubclass(kind, MpiReduction) and ranks * min(PERIODS) > highest(dtype):
            sys.exit(f"{kind.name} cannot sum {dtype.name} of {ranks} ranks: more than {highest(dtype)} overflow")


def element_types(text: str) -> List[np.dtype[Any]]:
    """Parse `float32,int32` into numpy types."""
    try:
        return [np.dtype(word) for word in text.split(",")]
    except TypeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def emit_hello(comm: MPI.Intracomm) -> None:
    """Report this rank and the MPI that it loaded: a launcher may load another one than intended.

    No rank continues before all have reported. A crash of the first would lose the reports of the others.
    """
    emit(
        t="hello",
        rank=comm.Get_rank(),
        size=comm.Get_size(),
        host=platform.node(),
        pid=os.getpid(),
        library=version_line(MPI.Get_library_version()),
        libmpi=library_path(ctypes.CDLL(MPI.__file__)),
        mpi4py=mpi4py.__version__,
        python=platform.python_version(),
        at=now(),
    )
    comm.Barrier()


def run_point(operation: MpiOperation, point: SweepPoint, options: argparse.Namespace, repeat: int) -> int:
    """Time the operation, and verify every result. Return this rank's number of wrong elements."""
    found: List[WrongElements] = []
    if operation.timed:
        steps = Steps(prepare, release, operation.comm.Barrier, nothing, wrong_elements)
        seconds = measure(operation, options, repeat, found, steps)
        everyone = operation.comm.gather(seconds / options.iterations / operation.per_step)
        if everyone is not None:
            emit_row(Timing(operation.name, operation.ranks, options.iterations, repeat), point, everyone)
    if not (operation.timed and operation.sweeps):
        operation.run_verified()
        found += wrong_elements([operation])
    if found:
        emit_wrong(operation.rank, point, repeat, found[0])
    return sum(wrong.count for wrong in found)


def prepare(operations: Sequence[MpiOperation]) -> None:
    """Fill the buffers of operations, and guard them."""
    for one in operations:
        one.fill()
    for one in operations:
        one.guard(True)


def release(operations: Sequence[MpiOperation]) -> None:
    """End the guard of buffers."""
    for one in operations:
        one.guard(False)


def nothing() -> None:
    """Do nothing: a step of MPI returns when its data have arrived."""


def wrong_elements(operations: Sequence[MpiOperation], first: int = 0) -> Iterator[WrongElements]:
    """Compare every element of all buffers with its expected value. Operations are numbered from `first`."""
    for iteration, operation in enumerate(operations, first):
        for buffer, got, wanted in operation.comparisons():
            if same_bytes(got, wanted):
                continue
            differs = got != wanted
            index = int(differs.argmax())
            first_wrong = (values.view(operation.dtype)[index] for values in (wanted, got))
            count = int(np.count_nonzero(differs))
            yield WrongElements(buffer, count, got.size, index, *first_wrong, iteration=iteration)
