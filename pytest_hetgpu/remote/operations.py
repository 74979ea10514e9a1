"""What ranks do at one point: buffers, their contents, and what must be in them afterwards.

An `Operation` has two buffers on each rank. `data` is what it sends, `result` what it gets. In place the two lie in the
same memory, as MPI says where: one is the other, or the rank's own block of it.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import numpy as np
from memory import Array, Memory
from mpi4py import MPI

ROOT = 0
PERIOD = 251
PERIODS = (PERIOD, 61, 31, 13, 5, 3, 2, 1)
RANK_SHIFT = 7
# Name of a buffer (`sent`, or nothing for the result), what is in it, what must be.
Compared = Tuple[str, "np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]


class MpiOperation:
    """One operation at one point, `count` elements of `dtype`; programs override what differs.

    `sent` says what is in `data` before a step, and still after it; `expected` what a step leaves in `result`.
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
        # Not every MPI knows the type; where it is only moved, another of its width does.
        self.wire = np.dtype(np.int16) if dtype == np.float16 else dtype
        self.given, self.wanted = self.sent().view(self.wire), self.expected().view(self.wire)
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
        """Whether a step writes into `result` on this rank; where it does not, nothing may change there."""
        return True

    def sent(self) -> np.ndarray[Any, Any]:
        """What this rank sends."""
        return pattern(self.rank, self.count, self.dtype)

    def expected(self) -> np.ndarray[Any, Any]:
        """What a step after `fill` must have left in `result`."""
        raise NotImplementedError

    def step(self) -> None:
        """Does one iteration."""
        raise NotImplementedError

    def allocate(self) -> None:
        """Makes the buffers, once for a point."""
        given, wanted = self.given.size, self.wanted.size
        if not self.in_place:
            self.data, self.result = self.room.array(given, self.wire), self.room.array(wanted, self.wire)
            return
        whole = self.room.array(max(given, wanted), self.wire)
        start = self.rank * self.block if given < wanted else 0
        self.data, self.result = whole[start : start + given], whole[:wanted]

    def fill(self) -> None:
        """Puts the rank's pattern into what is sent, and into `result` nothing of what a step must leave there."""
        self.room.write(self.result, poisoned(self.wanted) if self.receives else self.wanted)
        self.room.write(self.data, self.given)

    def read_by_mpi(self) -> Array:
        """The buffer whose pages are guarded: what this rank sends."""
        return self.result if self.in_place and self.result.size > self.data.size else self.data

    def guard(self, closed: bool) -> None:
        """Takes from the CPU the right to touch what this rank sends, or gives it back. Raises OSError."""
        self.room.guard(self.read_by_mpi(), closed)

    def run_verified(self) -> None:
        """Does the one step that is verified."""
        self.fill()
        self.guard(True)
        self.step()
        self.guard(False)

    def comparisons(self) -> List[Compared]:
        """What is verified: the result, and that what MPI may only read is as it was; no element twice."""
        only_sent = self.in_place and self.data.size > self.result.size and not self.overwrites
        result = [] if only_sent else [("", self.room.read(self.result), self.wanted)]
        sent = [("sent", self.room.read(self.data), self.given)] if only_sent or not self.in_place else []
        return result + sent

    def own_block(self, whole: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The rank's part of what is divided among all."""
        return whole[self.rank * self.block :][: self.block]

    def empty_buffer(self) -> np.ndarray[Any, Any]:
        """The contents of a buffer that this rank does not have."""
        return np.empty(0, self.dtype)


class MpiReduction(MpiOperation):
    """Sums what all ranks give. No sum leaves the type's range, where every MPI counts in its own way."""

    has_in_place = True
    overwrites = True

    def sent(self) -> np.ndarray[Any, Any]:
        return repeated(self.addend(self.rank), self.count)

    def total(self) -> np.ndarray[Any, Any]:
        """The sum over all ranks."""
        return repeated(sum(map(self.addend, range(1, self.ranks)), self.addend(0)), self.count)

    def addend(self, rank: int) -> np.ndarray[Any, Any]:
        """One period of what a rank gives."""
        return cycle(rank, self.dtype, next(period for period in PERIODS if period * self.ranks <= highest(self.dtype)))


def highest(dtype: np.dtype[Any]) -> int:
    """The largest whole number up to which a type has all of them."""
    return int(np.iinfo(dtype).max) if dtype.kind in "iu" else 1 << (np.finfo(dtype).nmant + 1)


def cycle(rank: int, dtype: np.dtype[Any], period: int = PERIOD) -> np.ndarray[Any, Any]:
    """The whole numbers from 1 to `period`, starting with another one on each rank."""
    return ((np.arange(period) + RANK_SHIFT * rank) % period + 1).astype(dtype)


def pattern(rank: int, count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """`count` whole numbers from 1 to 251 that differ between neighbouring indices and ranks.

    The period is prime, so a block that lands in the wrong place shows. They are exact in every type but int8, whose
    bits differ all the same.
    """
    return repeated(cycle(rank, dtype), count)


def repeated(values: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """`count` elements: the values again and again."""
    found = np.empty(count, values.dtype)
    whole = count - count % values.size
    found[:whole].reshape(-1, values.size)[:] = values
    found[whole:] = values[: count - whole]
    return found


def poisoned(expected: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Elements that differ from what is expected in all their bits, so that what was not written shows."""
    return np.invert(expected.view(np.uint8)).view(expected.dtype)
