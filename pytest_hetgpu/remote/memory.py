"""The memory of an operation's data, and copies in and out.

- host: memory of numpy
- guarded: pages of the host that the CPU may not access while MPI reads them
- device: memory of an accelerator, of which the host has addresses only
- managed: memory of an accelerator that the host may access, too
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Dict, List, Union

import numpy as np
from accelerator import DriverDevice

NO_ACCESS = 0
FULL_ACCESS = mmap.PROT_READ | mmap.PROT_WRITE
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
LIBC.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
ON_DEVICE = ("device", "managed")
KINDS = ("host", "guarded", *ON_DEVICE)

HostArray = np.ndarray[Any, Any]


class DeviceArray:
    """Contiguous elements on an accelerator; MPI takes their address by the CUDA array interface."""

    def __init__(self, device: DriverDevice, address: int, size: int, dtype: np.dtype[Any]) -> None:
        self.device, self.address, self.size, self.dtype = device, address, size, dtype

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        """https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html, which ROCm's libraries share."""
        return {
            "shape": (self.size,),
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": None,
            "version": 3,
        }

    def __getitem__(self, part: slice) -> DeviceArray:
        start, stop, step = part.indices(self.size)
        if step != 1:
            raise IndexError(f"elements {step} apart: only neighbours can be taken")
        address = self.address + start * self.dtype.itemsize
        return DeviceArray(self.device, address, max(0, stop - start), self.dtype)


Array = Union[HostArray, DeviceArray]


def same_bytes(one: HostArray, other: HostArray) -> bool:
    """Return whether two contiguous arrays of one size hold the same bytes; faster than to compare elements."""
    return LIBC.memcmp(one.ctypes.data, other.ctypes.data, one.nbytes) == 0


class Memory:
    """The memory of the host. All arrays of one operation come from one `Memory`, and are freed by `release`."""

    def array(self, count: int, dtype: np.dtype[Any]) -> Array:
        """Allocate `count` uninitialised elements."""
        return np.empty(count, dtype)

    def write(self, array: Array, values: HostArray) -> None:
        """Fill an array with values."""
        assert isinstance(array, np.ndarray)
        array[:] = values

    def read(self, array: Array) -> HostArray:
        """Return the contents of an array."""
        assert isinstance(array, np.ndarray)
        return array

    def guard(self, array: Array, closed: bool) -> None:
        """Deny the CPU access to an array, or allow it again, if this memory supports that. Raises OSError."""

    def release(self) -> None:
        """Free memory that numpy does not free by itself."""


class GuardedMemory(Memory):
    """Separate pages under mprotect."""

    def array(self, count: int, dtype: np.dtype[Any]) -> Array:
        pages = mmap.mmap(-1, max(1, count * dtype.itemsize), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return np.frombuffer(pages, dtype, count)

    def guard(self, array: Array, closed: bool) -> None:
        assert isinstance(array, np.ndarray)
        if not array.size:
            return
        if LIBC.mprotect(array.ctypes.data, array.nbytes, NO_ACCESS if closed else FULL_ACCESS):
            raise OSError(ctypes.get_errno(), f"mprotect: {os.strerror(ctypes.get_errno())}")


class DeviceMemory(Memory):
    """The memory of an accelerator."""

    managed = False

    def __init__(self, device: DriverDevice) -> None:
        self.device = device
        self.addresses: List[int] = []

    def array(self, count: int, dtype: np.dtype[Any]) -> Array:
        return DeviceArray(self.device, self.allocate(count * dtype.itemsize), count, dtype)

    def allocate(self, size: int) -> int:
        """Allocate bytes and return their address."""
        self.addresses.append(self.device.allocate(size, self.managed))
        return self.addresses[-1]

    def write(self, array: Array, values: HostArray) -> None:
        assert isinstance(array, DeviceArray)
        values = np.ascontiguousarray(values.view(array.dtype))
        if values.nbytes != array.nbytes:
            raise ValueError(f"{values.nbytes} bytes do not fill an array of {array.nbytes}")
        if values.nbytes:
            self.device.copy_to_device(array.address, values.ctypes.data, values.nbytes)

    def read(self, array: Array) -> HostArray:
        assert isinstance(array, DeviceArray)
        found = np.empty(array.size, array.dtype)
        if found.nbytes:
            self.device.synchronize()
            self.device.copy_to_host(found.ctypes.data, array.address, found.nbytes)
        return found

    def release(self) -> None:
        self.device.synchronize()
        while self.addresses:
            self.device.free(self.addresses.pop())


class ManagedMemory(DeviceMemory):
    """Managed memory of an accelerator. The host uses it as an array; MPI must recognise it by its address."""

    managed = True

    def array(self, count: int, dtype: np.dtype[Any]) -> Array:
        size = count * dtype.itemsize
        return np.frombuffer((ctypes.c_ubyte * max(1, size)).from_address(self.allocate(size)), dtype, count)

    def write(self, array: Array, values: HostArray) -> None:
        Memory.write(self, array, values)

    def read(self, array: Array) -> HostArray:
        self.device.synchronize()
        # A copy: the pages are freed before the values are compared.
        return Memory.read(self, array).copy()
