"""The root's data, a block of it for every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import MPI, ROOT, MpiOperation, main, pattern


class MpiScatter(MpiOperation):
    """Scatter: each rank verifies its own block of the root's pattern; in place, the root's block stays."""

    name = "scatter"
    splits = True
    rooted = True
    has_in_place = True

    def sent(self) -> np.ndarray[Any, Any]:
        return pattern(ROOT, self.count, self.dtype) if self.is_root else self.empty_buffer()

    def step(self) -> None:
        given = self.data if self.is_root else None
        self.comm.Scatter(given, MPI.IN_PLACE if self.in_place else self.result, root=ROOT)

    def expected(self) -> np.ndarray[Any, Any]:
        return self.own_block(pattern(ROOT, self.count, self.dtype))


if __name__ == "__main__":
    main(MpiScatter)
