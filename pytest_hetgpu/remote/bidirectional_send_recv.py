"""Ranks 2i and 2i+1 send to each other at the same time; bytes and time are those of one direction."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import MpiOperation, main, pattern


class MpiBidirectionalSendRecv(MpiOperation):
    """Send and receive at once: each side verifies the data of the other."""

    name = "bidirectional_send_recv"
    paired = True

    def step(self) -> None:
        self.comm.Sendrecv(self.data, self.peer, 0, self.result, self.peer)

    def expected(self) -> np.ndarray[Any, Any]:
        return pattern(self.peer, self.count, self.dtype)


if __name__ == "__main__":
    main(MpiBidirectionalSendRecv)
