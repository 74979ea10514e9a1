"""The root's data, on every rank. MPI has one buffer for it, so there is no in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import ROOT, MpiOperation, main, pattern
from memory import Array


class MpiBroadcast(MpiOperation):
    """Broadcast: every rank verifies the root's pattern, the root that its own is unchanged."""

    name = "broadcast"

    @property
    def receives(self) -> bool:
        return not self.is_root

    def sent(self) -> np.ndarray[Any, Any]:
        return self.empty_buffer()

    def read_by_mpi(self) -> Array:
        return self.result if self.is_root else self.data

    def step(self) -> None:
        self.comm.Bcast(self.result, root=ROOT)

    def expected(self) -> np.ndarray[Any, Any]:
        return pattern(ROOT, self.count, self.dtype)


if __name__ == "__main__":
    main(MpiBroadcast)
