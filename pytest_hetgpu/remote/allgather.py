"""A block from every rank, all of them left on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import MPI, MpiOperation, main, pattern


class MpiAllgather(MpiOperation):
    """All-gather: each rank sends one block and verifies all; in place, its own block is already in position."""

    name = "allgather"
    splits = True
    has_in_place = True

    def sent(self) -> np.ndarray[Any, Any]:
        return pattern(self.rank, self.block, self.dtype)

    def step(self) -> None:
        self.comm.Allgather(MPI.IN_PLACE if self.in_place else self.data, self.result)

    def expected(self) -> np.ndarray[Any, Any]:
        return np.concatenate([pattern(rank, self.block, self.dtype) for rank in range(self.ranks)])


if __name__ == "__main__":
    main(MpiAllgather)
