"""Sends from memory that the sender's host may not read, from ranks 2i to ranks 2i+1.

A transport that takes a device pointer for host memory lets the CPU read it, through the PCI window (BAR) in which the
device shows its memory. On a GPU without Large BAR most of that memory has no window, the page is mapped without
permissions, and the read ends in SIGSEGV ("invalid permissions for mapped object") or EFAULT. Pages under
mprotect(PROT_NONE) look just the same to the CPU, so how a stack meets this can be seen on a machine without a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import MpiOperation, main, pattern


class MpiGuardedSend(MpiOperation):
    """The receiver verifies what arrives, the sender that its own pages are as they were."""

    name = "guarded_send"
    timed = False
    paired = True
    memory = "guarded"

    @property
    def sends(self) -> bool:
        """Whether this is the rank with the guarded pages."""
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
