"""Sum over all ranks, left on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import MPI, MpiReduction, main


class MpiAllreduce(MpiReduction):
    """All-reduce: each rank contributes its own pattern and verifies the sum."""

    name = "allreduce"

    def step(self) -> None:
        self.comm.Allreduce(MPI.IN_PLACE if self.in_place else self.data, self.result)

    def expected(self) -> np.ndarray[Any, Any]:
        return self.total()


if __name__ == "__main__":
    main(MpiAllreduce)
