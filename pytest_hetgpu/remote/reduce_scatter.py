"""Sum over all ranks, of which each gets one block."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import MPI, MpiReduction, main


class MpiReduceScatter(MpiReduction):
    """Each rank gives all elements and verifies its own block of the sum; in place that is the first of the buffer."""

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
