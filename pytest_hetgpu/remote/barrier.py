"""A barrier: no data, only a time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from harness import MPI, MpiOperation, main

LATE = 0.002  # seconds; many times what a barrier takes that holds nobody
MOST_LATE = 16


class MpiBarrier(MpiOperation):
    """Some ranks in turn come late, and say so to all others; none of these may get through before it has the word."""

    name = "barrier"
    sweeps = False

    def sent(self) -> np.ndarray[Any, Any]:
        return self.empty_buffer()

    def expected(self) -> np.ndarray[Any, Any]:
        return np.ones(len(self.late_ranks()), self.dtype)

    def late_ranks(self) -> range:
        """All ranks, or some of very many."""
        return range(0, self.ranks, -(-self.ranks // MOST_LATE))

    def step(self) -> None:
        self.comm.Barrier()

    def run_verified(self) -> None:
        self.fill()
        for index, late in enumerate(self.late_ranks()):
            self.result[index] = self.enter_late() if self.rank == late else self.enter_early(late)

    def enter_late(self) -> bool:
        """Enters the barrier when every other rank is sure to have the word."""
        time.sleep(LATE)
        for other in range(self.ranks):
            if other != self.rank:
                # Such a send ends when its receive has begun.
                self.comm.Ssend([None, 0, MPI.BYTE], other)
        self.step()
        return True

    def enter_early(self, late: int) -> bool:
        """Whether the word was there when the barrier let this rank go."""
        word = self.comm.Irecv([bytearray(1), 0, MPI.BYTE], late)
        self.step()
        there = word.Test()
        word.Wait()
        return bool(there)


if __name__ == "__main__":
    main(MpiBarrier)
