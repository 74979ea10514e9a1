"""A block from every rank for every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import MPI, MpiOperation, main, pattern


class MpiAlltoall(MpiOperation):
    """All-to-all: each rank verifies the blocks that it received from every rank."""

    name = "alltoall"
    splits = True
    has_in_place = True
    overwrites = True

    def step(self) -> None:
        self.comm.Alltoall(MPI.IN_PLACE if self.in_place else self.data, self.result)

    def expected(self) -> np.ndarray[Any, Any]:
        everything = (pattern(rank, self.count, self.dtype) for rank in range(self.ranks))
        return np.concatenate([self.own_block(theirs) for theirs in everything])


if __name__ == "__main__":
    main(MpiAlltoall)
