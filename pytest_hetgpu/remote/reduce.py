"""Sum over all ranks, left on the root."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import MPI, ROOT, MpiReduction, main


class MpiReduce(MpiReduction):
    """Reduce: the root verifies the sum, the others that their buffers are untouched."""

    name = "reduce"
    rooted = True

    @property
    def receives(self) -> bool:
        return self.is_root

    def step(self) -> None:
        self.comm.Reduce(MPI.IN_PLACE if self.in_place else self.data, self.result, root=ROOT)

    def expected(self) -> np.ndarray[Any, Any]:
        return self.total() if self.is_root else self.sent()


if __name__ == "__main__":
    main(MpiReduce)
