"""A block from every rank, all of them left on the root."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import MPI, ROOT, MpiOperation, main, pattern


class MpiGather(MpiOperation):
    """Gather: the root verifies all blocks, the others that their buffers are untouched."""

    name = "gather"
    splits = True
    rooted = True
    has_in_place = True

    @property
    def receives(self) -> bool:
        return self.is_root

    def sent(self) -> np.ndarray[Any, Any]:
        return pattern(self.rank, self.block, self.dtype)

    def step(self) -> None:
        self.comm.Gather(MPI.IN_PLACE if self.in_place else self.data, self.result, root=ROOT)

    def expected(self) -> np.ndarray[Any, Any]:
        if not self.is_root:
            return pattern(self.rank, self.count, self.dtype)
        return np.concatenate([pattern(rank, self.block, self.dtype) for rank in range(self.ranks)])


if __name__ == "__main__":
    main(MpiGather)
