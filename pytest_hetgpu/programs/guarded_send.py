"""Sends from memory that the sender's host may not read, from ranks 2i to ranks 2i+1.

A transport that takes a device pointer for host memory lets the CPU read it, through the PCI window (BAR) in which the
device shows its memory. On a GPU without Large BAR most of that memory has no window, the page is mapped without
permissions, and the read ends in SIGSEGV ("invalid permissions for mapped object") or EFAULT. Pages under
mprotect(PROT_NONE) look just the same to the CPU, so how a stack meets this can be seen on a machine without a GPU.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np
from harness import Operation, main, pattern, poison

NO_ACCESS = 0
FULL_ACCESS = mmap.PROT_READ | mmap.PROT_WRITE
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class GuardedSend(Operation):
    """The receiver verifies what arrives, the sender that its own pages are as they were."""

    name = "guarded_send"
    timed = False
    paired = True

    @property
    def sends(self) -> bool:
        """Whether this is the rank with the guarded pages."""
        return self.rank % 2 == 0

    def allocate(self) -> None:
        length = self.count * self.dtype.itemsize
        self.pages = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.result = np.frombuffer(self.pages, self.dtype, self.count)

    def fill(self) -> None:
        if self.sends:
            self.result[:] = self.expected()
        else:
            poison(self.result, self.expected())

    def step(self) -> None:
        if self.sends:
            self.allow(NO_ACCESS)
            self.comm.Send(self.result, self.peer)
            self.allow(FULL_ACCESS)
        else:
            self.comm.Recv(self.result, self.peer)

    def expected(self) -> np.ndarray[Any, Any]:
        return pattern(self.rank if self.sends else self.peer, self.count, self.dtype)

    def allow(self, protection: int) -> None:
        """Sets what the CPU may do with the pages. Raises OSError."""
        if LIBC.mprotect(self.result.ctypes.data, self.result.nbytes, protection):
            raise OSError(ctypes.get_errno(), f"mprotect: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main(GuardedSend)
