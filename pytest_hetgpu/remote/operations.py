"""The operation of a rank at one point: buffers, their contents, and their expected contents afterwards.

An `MpiOperation` has two buffers on each rank: `data` is sent, `result` is received. In place, the two share memory as
MPI prescribes: one is the other, or the rank's own block of it.
"""

from __future__ import annotations

import copy
from typing import Any, List, Optional, Tuple

import numpy as np
from memory import Array, Memory
from mpi4py import MPI

ROOT = 0
PERIOD = 251
PERIODS = (PERIOD, 61, 31, 13, 5, 3, 2, 1)
RANK_SHIFT = 7
# Bytes of all results that are kept to be verified after a timed loop. Small messages keep one result per iteration in
# the processor's caches; a large message is verified after each iteration.
KEPT = 4 << 20
# Name of a buffer (`sent`, or "" for the result), its contents, its expected contents.
Compared = Tuple[str, "np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]


class MpiOperation:
    """One operation at one point, `count` elements of `dtype`; programs override its parts.

    `sent` returns the contents of `data` before a step, which must not change. `expected` returns the contents of
    `result` after a step.
    """

    name = ""
    timed = True
    sweeps = True  # over sizes and types; else it has one point, without data
    per_step = 1  # operations in one step: a ping-pong is two sends
    paired = False  # works between ranks 2i and 2i+1, so the world must be even
    splits = False  # the elements of a point are divided among the ranks
    rooted = False  # in place concerns the root alone
    has_in_place = False
    overwrites = False  # in place, `data` is lost
    memory = "host"

    def __init__(
        self,
        comm: MPI.Intracomm,
        count: int,
        dtype: np.dtype[Any],
        *,
        in_place: bool = False,
        room: Optional[Memory] = None,
    ) -> None:
        self.comm, self.rank, self.ranks = comm, comm.Get_rank(), comm.Get_size()
        self.count, self.dtype, self.block = count, dtype, count // self.ranks
        self.in_place = in_place and not (self.rooted and self.rank != ROOT)
        self.room = room or Memory()
        # Some MPIs lack the type; for moving data, another type of its width works.
        self.wire = np.dtype(np.int16) if dtype == np.float16 else dtype
        self.given, self.wanted = self.sent().view(self.wire), self.expected().view(self.wire)
        self.before = poisoned(self.wanted) if self.receives else self.wanted
        self.shares_data = False  # with an operation that fills and verifies `data`
        self.allocate()

    @property
    def peer(self) -> int:
        """The other rank of this one's pair."""
        return self.rank ^ 1

    @property
    def is_root(self) -> bool:
        """Whether this is the root of a rooted collective."""
        return self.rank == ROOT

    @property
    def receives(self) -> bool:
        """Whether a step writes into `result` on this rank; if not, nothing may change there."""
        return True

    def sent(self) -> np.ndarray[Any, Any]:
        """Return the data that this rank sends."""
        return pattern(self.rank, self.count, self.dtype)

    def expected(self) -> np.ndarray[Any, Any]:
        """Return the contents of `result` after `fill` and one step."""
        raise NotImplementedError

    def step(self) -> None:
        """Run one iteration."""
        raise NotImplementedError

    def allocate(self) -> None:
        """Allocate the buffers, once per point."""
        given, wanted = self.given.size, self.wanted.size
        if not self.in_place:
            self.data, self.result = self.room.array(given, self.wire), self.room.array(wanted, self.wire)
            return
        whole = self.room.array(max(given, wanted), self.wire)
        start = self.rank * self.block if given < wanted else 0
        self.data, self.result = whole[start : start + given], whole[:wanted]

    def with_results(self, most: int) -> List[MpiOperation]:
        """Return this operation, and copies of it with results of their own: up to `most`, and up to `KEPT` bytes.

        They send the same `data`, unless it is in place. Their number is the same on every rank.
        """
        found: List[MpiOperation] = [self]
        room_for = KEPT // max(1, self.count * self.wire.itemsize)
        for _ in range(1, min(most, room_for)):
            other = copy.copy(self)
            other.allocate()
            if not self.in_place:
                other.data, other.shares_data = self.data, True
            found.append(other)
        return found

    def fill(self) -> None:
        """Fill `data` with the rank's pattern, and `result` with values that differ from the expected ones."""
        self.room.write(self.result, self.before)
        if not self.shares_data:
            self.room.write(self.data, self.given)

    def read_by_mpi(self) -> Array:
        """Return the buffer whose pages are guarded: the data that this rank sends."""
        return self.result if self.in_place and self.result.size > self.data.size else self.data

    def guard(self, closed: bool) -> None:
        """Deny the CPU access to the data that this rank sends, or allow it again. Raises OSError."""
        self.room.guard(self.read_by_mpi(), closed)

    def run_verified(self) -> None:
        """Run one step that is verified."""
        self.fill()
        self.guard(True)
        self.step()
        self.guard(False)

    def comparisons(self) -> List[Compared]:
        """Return the buffers to verify: the result, and the data that MPI may only read; no element twice."""
        only_sent = self.in_place and self.data.size > self.result.size and not self.overwrites
        result = [] if only_sent else [("", self.room.read(self.result), self.wanted)]
        checks_sent = only_sent or not (self.in_place or self.shares_data)
        sent = [("sent", self.room.read(self.data), self.given)] if checks_sent else []
        return result + sent

    def own_block(self, whole: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the rank's part of data that is divided among all."""
        return whole[self.rank * self.block :][: self.block]

    def empty_buffer(self) -> np.ndarray[Any, Any]:
        """Return the contents of a buffer that this rank does not have."""
        return np.empty(0, self.dtype)


class MpiReduction(MpiOperation):
    """A sum over all ranks. No sum leaves the type's range, because MPIs differ in their overflow."""

    has_in_place = True
    overwrites = True

    def sent(self) -> np.ndarray[Any, Any]:
        return repeated(self.addend(self.rank), self.count)

    def total(self) -> np.ndarray[Any, Any]:
        """Return the sum over all ranks."""
        return repeated(sum(map(self.addend, range(1, self.ranks)), self.addend(0)), self.count)

    def addend(self, rank: int) -> np.ndarray[Any, Any]:
        """Return one period of a rank's contribution."""
        return cycle(rank, self.dtype, next(period for period in PERIODS if period * self.ranks <= highest(self.dtype)))


def highest(dtype: np.dtype[Any]) -> int:
    """Return the largest whole number up to which a type represents all of them."""
    return int(np.iinfo(dtype).max) if dtype.kind in "iu" else 1 << (np.finfo(dtype).nmant + 1)


def cycle(rank: int, dtype: np.dtype[Any], period: int = PERIOD) -> np.ndarray[Any, Any]:
    """Return the whole numbers from 1 to `period`, with another start on each rank."""
    return ((np.arange(period) + RANK_SHIFT * rank) % period + 1).astype(dtype)


def pattern(rank: int, count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return `count` whole numbers from 1 to 251 that differ between neighbouring indices and ranks.

    The period is prime, so a block in the wrong place is detected. The numbers are exact in every type but int8, whose
    bits differ all the same.
    """
    return repeated(cycle(rank, dtype), count)


def repeated(values: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Return `count` elements: the values again and again."""
    found = np.empty(count, values.dtype)
    whole = count - count % values.size
    found[:whole].reshape(-1, values.size)[:] = values
    found[whole:] = values[: count - whole]
    return found


def poisoned(expected: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return elements that differ from the expected ones in all bits, so that missing writes are detected."""
    return np.invert(expected.view(np.uint8)).view(expected.dtype)
