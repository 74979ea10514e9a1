"""Sum over all ranks, left on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import PERIOD, Operation, main, pattern


class Allreduce(Operation):
    """Each rank contributes its own pattern; every rank verifies the sum."""

    name = "allreduce"

    def step(self) -> None:
        self.comm.Allreduce(self.data, self.result)

    def expected(self) -> np.ndarray[Any, Any]:
        cycle = min(self.count, PERIOD)
        return np.resize(sum(pattern(rank, cycle, self.dtype) for rank in range(self.ranks)), self.count)


if __name__ == "__main__":
    main(Allreduce)
