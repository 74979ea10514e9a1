"""Ping-pong between ranks 2i and 2i+1, all pairs at once; the time is that of one way."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import MpiOperation, main, pattern


class MpiSendRecv(MpiOperation):
    """Ping-pong: the even rank sends first; each side verifies the data of the other."""

    name = "send_recv"
    per_step = 2
    paired = True

    def step(self) -> None:
        if self.rank % 2:
            self.comm.Recv(self.result, self.peer)
            self.comm.Send(self.data, self.peer)
        else:
            self.comm.Send(self.data, self.peer)
            self.comm.Recv(self.result, self.peer)

    def expected(self) -> np.ndarray[Any, Any]:
        return pattern(self.peer, self.count, self.dtype)


if __name__ == "__main__":
    main(MpiSendRecv)
