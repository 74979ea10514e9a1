"""Sends from memory that the sender's host may not read, from ranks 2i to ranks 2i+1.

A transport that takes a device pointer for host memory lets the CPU read it. The CPU reads through the PCI window (BAR)
in which the device shows its memory. On a GPU without Large BAR, most of that memory has no window, and the page is
mapped without permissions. The read ends in SIGSEGV ("invalid permissions for mapped object") or EFAULT. For the CPU,
pages under mprotect(PROT_NONE) are the same. So this behaviour of a stack can be tested without a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import MpiOperation, main, pattern


class MpiGuardedSend(MpiOperation):
    """Send from guarded pages: the receiver verifies the data, the sender that its pages are unchanged."""

    name = "guarded_send"
    timed = False
    paired = True
    memory = "guarded"

    @property
    def sends(self) -> bool:
        """Whether this rank has the guarded pages."""
        return self.rank % 2 == 0

    def sent(self) -> np.ndarray[Any, Any]:
        return pattern(self.rank, self.count, self.dtype) if self.sends else self.empty_buffer()

    def step(self) -> None:
        if self.sends:
            self.comm.Send(self.data, self.peer)
        else:
            self.comm.Recv(self.result, self.peer)

    def expected(self) -> np.ndarray[Any, Any]:
        return self.empty_buffer() if self.sends else pattern(self.peer, self.count, self.dtype)


if __name__ == "__main__":
    main(MpiGuardedSend)
