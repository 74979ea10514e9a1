"""The frame of what ranks execute: arguments, greeting, timing, verification, records.

It runs where nothing else of this package is installed: Python 3.8, mpi4py and numpy are all it needs. Programs are
started with `python -m mpi4py PROGRAM.py ARGS`: then an error that one rank does not catch ends the whole job, instead
of leaving the others waiting for ever. A program describes one `Operation` and hands it to `main`, which reads

    --sizes 8,1024       bytes of a point; it has size // itemsize elements
    --dtypes float32     element types, by their numpy names
    --iterations 20      timed iterations
    --warmup 5           untimed ones before them

and writes lines of ASCII to standard output, `@hetgpu:LLLL:CCCCCCCC:PAYLOAD`: PAYLOAD is a JSON object of at most 4000
bytes, LLLL its length in decimal and CCCCCCCC its CRC-32 in hexadecimal digits, so that a reader can tell a whole
record from what a launcher has cut or mixed with other output.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import sys
import time
import zlib
from pathlib import Path
from typing import Any, List, Type

import mpi4py
import numpy as np
from mpi4py import MPI

STDOUT = 1
LONGEST_PAYLOAD = 4000
POINTS_PER_RECORD = 50
PERIOD = 251
RANK_SHIFT = 7


class Operation:
    """One operation at one point, `count` elements of `dtype`; programs override what differs.

    `result` is what a step leaves and `expected` what must be in it, element by element.
    """

    name = ""
    timed = True
    per_step = 1  # operations in one step: a ping-pong is two sends
    paired = False  # works between ranks 2i and 2i+1, so the world must be even

    def __init__(self, comm: MPI.Intracomm, count: int, dtype: np.dtype[Any]) -> None:
        self.comm, self.rank, self.ranks = comm, comm.Get_rank(), comm.Get_size()
        self.count, self.dtype = count, dtype
        self.allocate()

    @property
    def peer(self) -> int:
        """The other rank of this one's pair."""
        return self.rank ^ 1

    def allocate(self) -> None:
        """Makes the buffers, once for a point."""
        self.data = np.empty(self.count, self.dtype)
        self.result = np.empty(self.count, self.dtype)

    def fill(self) -> None:
        """Puts the rank's pattern into what is sent, and into `result` nothing of what a step must leave there."""
        self.data[:] = pattern(self.rank, self.count, self.dtype)
        poison(self.result, self.expected())

    def step(self) -> None:
        """Does one iteration."""
        raise NotImplementedError

    def expected(self) -> np.ndarray[Any, Any]:
        """What a step after `fill` must have left in `result`."""
        raise NotImplementedError


def pattern(rank: int, count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """`count` whole numbers from 1 to 251 that differ between neighbouring indices and ranks.

    The period is prime, so a block that lands in the wrong place shows; sums over 66,000 ranks are exact in float32.
    """
    cycle = (np.arange(min(count, PERIOD)) + RANK_SHIFT * rank) % PERIOD + 1
    return np.resize(cycle.astype(dtype), count)


def poison(buffer: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    """Makes every element differ from what is expected, in all its bits, so that what was not written shows."""
    np.invert(expected.view(np.uint8), out=buffer.view(np.uint8))


def emit(**record: Any) -> None:
    """Writes one record by one system call. Raises ValueError for a payload the protocol has no room for."""
    payload = json.dumps(record, separators=(",", ":")).encode("ascii")
    if len(payload) > LONGEST_PAYLOAD:
        raise ValueError(f"a record of {len(payload)} bytes, more than {LONGEST_PAYLOAD}: {payload[:80]!r}...")
    line = b"@hetgpu:%04d:%08x:%b\n" % (len(payload), zlib.crc32(payload), payload)
    while line:
        line = line[os.write(STDOUT, line) :]


def main(kind: Type[Operation]) -> None:
    """Runs an operation at every point asked for on the command line, and reports."""
    options = arguments()
    comm = MPI.COMM_WORLD
    greet(comm)
    if kind.paired and comm.Get_size() % 2:
        sys.exit(f"{kind.name} works between pairs of ranks: it needs an even number of them, not {comm.Get_size()}")
    checks = []
    for size in options.sizes:
        for dtype in options.dtypes:
            operation = kind(comm, size // dtype.itemsize, dtype)
            checks.append([size, dtype.name, run_point(operation, size, options)])
    for start in range(0, len(checks), POINTS_PER_RECORD):
        emit(t="check", rank=comm.Get_rank(), points=checks[start : start + POINTS_PER_RECORD])
    emit(t="done", rank=comm.Get_rank())


def arguments() -> argparse.Namespace:
    """The command line, as the module's docstring describes it; ends the program on a mistake in it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=positive_numbers, required=True)
    parser.add_argument("--dtypes", type=element_types, default="float32")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    options = parser.parse_args()
    if options.iterations < 1 or options.warmup < 0:
        parser.error(f"{options.iterations} iterations after {options.warmup} of warm-up: at least 1 after 0")
    for dtype in options.dtypes:
        if min(options.sizes) < dtype.itemsize:
            parser.error(f"size {min(options.sizes)} holds no element of {dtype.name} ({dtype.itemsize} bytes)")
    return options


def positive_numbers(text: str) -> List[int]:
    """`8,1024` as numbers."""
    numbers = [int(word) for word in text.split(",")]
    if min(numbers) < 1:
        raise ValueError(text)
    return numbers


def element_types(text: str) -> List[np.dtype[Any]]:
    """`float32,int32` as numpy's types."""
    try:
        return [np.dtype(word) for word in text.split(",")]
    except TypeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def greet(comm: MPI.Intracomm) -> None:
    """Says who this rank is and which MPI it has loaded, for a launcher may start it with another than was meant.

    No rank goes on before all have greeted: a crash of the first would take the greetings of the others with it.
    """
    emit(
        t="hello",
        rank=comm.Get_rank(),
        size=comm.Get_size(),
        host=platform.node(),
        pid=os.getpid(),
        library=" ".join(MPI.Get_library_version().replace("\0", " ").split())[:120],
        libmpi=mapped_library(),
        mpi4py=mpi4py.__version__,
        python=platform.python_version(),
    )
    comm.Barrier()


def mapped_library() -> str:
    """Real path of the file whose MPI this process calls: the mapping that holds the function's address."""
    function = ctypes.CDLL(MPI.__file__).MPI_Get_library_version
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        low, high = (int(bound, 16) for bound in fields[0].split("-"))
        if low <= address < high:
            return os.path.realpath(fields[5])
    return ""


def run_point(operation: Operation, size: int, options: argparse.Namespace) -> int:
    """Times the operation, then verifies one step more. Returns this rank's number of wrong elements."""
    operation.fill()
    if operation.timed:
        measure(operation, size, options)
        operation.fill()
    operation.step()
    return verify(operation, size)


def measure(operation: Operation, size: int, options: argparse.Namespace) -> None:
    """Times iterations on every rank; rank 0 reports seconds for one operation."""
    comm = operation.comm
    for _ in range(options.warmup):
        operation.step()
    comm.Barrier()
    started = time.perf_counter()
    for _ in range(options.iterations):
        operation.step()
    mine = (time.perf_counter() - started) / options.iterations / operation.per_step
    everyone = comm.gather(mine)
    if everyone is not None:
        emit(
            t="row",
            op=operation.name,
            size=size,
            dtype=operation.dtype.name,
            ranks=operation.ranks,
            iterations=options.iterations,
            seconds=sum(everyone) / len(everyone),
            min=min(everyone),
            max=max(everyone),
        )


def verify(operation: Operation, size: int) -> int:
    """Compares every element with what it must be; reports the first that differs. Returns how many do."""
    got, wanted = operation.result, operation.expected()
    differs = got != wanted
    count = int(np.count_nonzero(differs))
    if count:
        index = int(differs.argmax())
        emit(
            t="wrong",
            rank=operation.rank,
            size=size,
            dtype=operation.dtype.name,
            index=index,
            expected=str(wanted[index]),
            got=str(got[index]),
            count=count,
        )
    return count
