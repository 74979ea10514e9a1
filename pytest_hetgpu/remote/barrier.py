"""A barrier: no data, only a time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from harness import MPI, MpiOperation, main

LATE = 0.002  # seconds; many times the duration of a barrier without late ranks
MOST_LATE = 16


class MpiBarrier(MpiOperation):
    """Barrier: late ranks, in turn, send a word to all others, which must not leave before they have it."""

    name = "barrier"
    sweeps = False

    def sent(self) -> np.ndarray[Any, Any]:
        return self.empty_buffer()

    def expected(self) -> np.ndarray[Any, Any]:
        return np.ones(len(self.late_ranks()), self.dtype)

    def late_ranks(self) -> range:
        """Return all ranks, or some of very many."""
        return range(0, self.ranks, -(-self.ranks // MOST_LATE))

    def step(self) -> None:
        self.comm.Barrier()

    def run_verified(self) -> None:
        self.fill()
        for index, late in enumerate(self.late_ranks()):
            self.result[index] = self.enter_late() if self.rank == late else self.enter_early(late)

    def enter_late(self) -> bool:
        """Enter the barrier after every other rank has the word."""
        time.sleep(LATE)
        for other in range(self.ranks):
            if other != self.rank:
                # Such a send ends when its receive has begun.
                self.comm.Ssend([None, 0, MPI.BYTE], other)
        self.step()
        return True

    def enter_early(self, late: int) -> bool:
        """Return whether the word had arrived when the barrier released this rank."""
        word = self.comm.Irecv([bytearray(1), 0, MPI.BYTE], late)
        self.step()
        there = word.Test()
        word.Wait()
        return bool(there)


if __name__ == "__main__":
    main(MpiBarrier)
