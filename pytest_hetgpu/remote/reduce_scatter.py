"""Sum over all ranks, divided into one block per rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import MPI, MpiReduction, main


class MpiReduceScatter(MpiReduction):
    """Reduce-scatter: each rank verifies its block of the sum, which in place is the first of the buffer."""

    name = "reduce_scatter"
    splits = True

    def step(self) -> None:
        if self.in_place:
            self.comm.Reduce_scatter_block(MPI.IN_PLACE, self.data)
        else:
            self.comm.Reduce_scatter_block(self.data, self.result)

    def expected(self) -> np.ndarray[Any, Any]:
        return self.own_block(self.total())


if __name__ == "__main__":
    main(MpiReduceScatter)
