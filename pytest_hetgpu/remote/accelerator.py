"""An accelerator of this node, used through the library of its driver by ctypes. Nothing has to be installed.

CUDA: the driver API of `libcuda.so.1` (https://docs.nvidia.com/cuda/cuda-driver-api/). ROCm: the runtime API of
`libamdhip64.so` (https://rocm.docs.amd.com/projects/HIP/en/latest/). Every call is checked. Needs Python 3.8.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

MANAGED = 1  # CU_MEM_ATTACH_GLOBAL, hipMemAttachGlobal: any device and the host may access it
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
TO_DEVICE, TO_HOST = 1, 2  # hipMemcpyHostToDevice, hipMemcpyDeviceToHost
TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
RANK_ON_NODE = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")


class DriverDevice:
    """One device, selected for this process. `held` counts the allocated bytes, `peak` their maximum."""

    files: Tuple[str, ...] = ()

    def __init__(self, library: ctypes.CDLL, local: int) -> None:
        self.library = library
        self.held = self.peak = 0
        self.sizes: Dict[int, int] = {}
        count = ctypes.c_int()
        self.count_devices(count)
        if not count.value:
            raise OSError("it sees no device")
        self.index = local % count.value
        self.name, self.arch, self.memory = "", "", 0
        self.select()

    def count_devices(self, count: ctypes.c_int) -> None:
        """Initialise the library and count its devices. Raises OSError."""
        raise NotImplementedError

    def select(self) -> None:
        """Select the device for this process; read its name, architecture and memory in bytes."""
        raise NotImplementedError

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function that returns an error code. Raises OSError if it is not 0."""
        code = getattr(self.library, function)(*arguments)
        if code:
            raise OSError(code, f"{function}: {self.error(code)}")

    def error(self, code: int) -> str:
        """Return the library's name for an error code."""
        raise NotImplementedError

    def allocate(self, size: int, managed: bool) -> int:
        """Allocate bytes on the device and return their address; the host may access `managed` ones, too."""
        found = ctypes.c_void_p()
        self.reserve(found, max(1, size), managed)
        address = found.value or 0
        self.sizes[address] = max(1, size)
        self.held += max(1, size)
        self.peak = max(self.peak, self.held)
        return address

    def free(self, address: int) -> None:
        """Free an address that `allocate` returned."""
        self.held -= self.sizes.pop(address)
        self.release(address)

    def reserve(self, found: ctypes.c_void_p, size: int, managed: bool) -> None:
        """Allocate, and store the address in `found`."""
        raise NotImplementedError

    def release(self, address: int) -> None:
        """Free an address in the library."""
        raise NotImplementedError

    def copy_to_device(self, address: int, source: int, size: int) -> None:
        """Copy bytes of the host to the device, and wait for the end of the copy."""
        raise NotImplementedError

    def copy_to_host(self, target: int, address: int, size: int) -> None:
        """Copy bytes of the device to the host, and wait for the end of the copy."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until all work on the device is done."""
        raise NotImplementedError


class CudaDevice(DriverDevice):
    """A device of the NVIDIA driver. It uses the primary context, which the CUDA runtime and UCX share."""

    files = ("libcuda.so.1",)

    def count_devices(self, count: ctypes.c_int) -> None:
        self.call("cuInit", 0)
        self.call("cuDeviceGetCount", ctypes.byref(count))

    def select(self) -> None:
        device, context, total = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
        self.call("cuDeviceGet", ctypes.byref(device), self.index)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, len(name), device)
        self.call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
        self.name, self.memory = name.value.decode(errors="replace"), total.value
        major, minor = (self.attribute(which, device) for which in (MAJOR, MINOR))
        self.arch = f"sm_{major}{minor}"

    def attribute(self, which: int, device: ctypes.c_int) -> int:
        """Read a numeric attribute of a device."""
        found = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(found), which, device)
        return found.value

    def error(self, code: int) -> str:
        name = ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(name))
        return (name.value or b"unknown error").decode(errors="replace")

    def reserve(self, found: ctypes.c_void_p, size: int, managed: bool) -> None:
        if managed:
            self.call("cuMemAllocManaged", ctypes.byref(found), ctypes.c_size_t(size), MANAGED)
        else:
            self.call("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(size))

    def release(self, address: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_void_p(address))

    def copy_to_device(self, address: int, source: int, size: int) -> None:
        self.call("cuMemcpyHtoD_v2", ctypes.c_void_p(address), ctypes.c_void_p(source), ctypes.c_size_t(size))
        self.synchronize()

    def copy_to_host(self, target: int, address: int, size: int) -> None:
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(target), ctypes.c_void_p(address), ctypes.c_size_t(size))

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")


class RocmDevice(DriverDevice):
    """A device of the HIP runtime. HIP structures differ between releases, so the kernel provides the architecture."""

    files = (
        *("libamdhip64.so", "/opt/rocm/lib/libamdhip64.so"),
        *(f"libamdhip64.so.{major}" for major in (7, 6, 5)),
    )

    def count_devices(self, count: ctypes.c_int) -> None:
        self.call("hipInit", 0)
        self.call("hipGetDeviceCount", ctypes.byref(count))

    def select(self) -> None:
        self.call("hipSetDevice", self.index)
        name, place, total = ctypes.create_string_buffer(256), ctypes.create_string_buffer(64), ctypes.c_size_t()
        self.call("hipDeviceGetName", name, len(name), self.index)
        self.call("hipDeviceTotalMem", ctypes.byref(total), self.index)
        self.call("hipDeviceGetPCIBusId", place, len(place), self.index)
        self.name, self.memory = name.value.decode(errors="replace"), total.value
        self.arch = gfx_name(place.value.decode(errors="replace"))

    def error(self, code: int) -> str:
        self.library.hipGetErrorName.restype = ctypes.c_char_p
        return (self.library.hipGetErrorName(code) or b"unknown error").decode(errors="replace")

    def reserve(self, found: ctypes.c_void_p, size: int, managed: bool) -> None:
        if managed:
            self.call("hipMallocManaged", ctypes.byref(found), ctypes.c_size_t(size), MANAGED)
        else:
            self.call("hipMalloc", ctypes.byref(found), ctypes.c_size_t(size))

    def release(self, address: int) -> None:
        self.call("hipFree", ctypes.c_void_p(address))

    def copy_to_device(self, address: int, source: int, size: int) -> None:
        self.copy(address, source, size, TO_DEVICE)
        self.synchronize()

    def copy_to_host(self, target: int, address: int, size: int) -> None:
        self.copy(target, address, size, TO_HOST)

    def copy(self, target: int, source: int, size: int, way: int) -> None:
        """Copy bytes in one of the two directions."""
        self.call("hipMemcpy", ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(size), way)

    def synchronize(self) -> None:
        self.call("hipDeviceSynchronize")


def open_device() -> DriverDevice:
    """Open the device of this rank; ranks of a node take its devices in turn. Exit if there is none."""
    local = next((int(os.environ[name]) for name in RANK_ON_NODE if os.environ.get(name, "").isdigit()), 0)
    reasons: List[str] = []
    for kind in (CudaDevice, RocmDevice):
        library, why = load_library(kind.files)
        if library is not None:
            try:
                return kind(library, local)
            except (OSError, AttributeError) as error:
                why = f"{kind.files[0]}: {error}"
        reasons.append(why)
    sys.exit(f"no accelerator for device or managed memory on {os.uname().nodename}: {'; '.join(reasons)}")


def load_library(files: Tuple[str, ...]) -> Tuple[Optional[ctypes.CDLL], str]:
    """Load the first of these libraries that can be loaded, else return the error of the first."""
    why = ""
    for file in files:
        try:
            return ctypes.CDLL(file), ""
        except OSError as error:
            why = why or str(error)
    return None, why


def gfx_name(place: str, topology: str = TOPOLOGY) -> str:
    """Return `gfx1011` for the device at `0000:c1:00.0`; "" if the kernel lists no such device.

    `location_id` is bus, device and function in one number. The last four digits of `gfx_target_version` 100101 are two
    each for minor and stepping, which the name writes in hexadecimal.
    """
    try:
        domain, bus, rest = place.split(":")
        device, function = rest.split(".")
        wanted = (int(domain, 16), int(bus, 16) << 8 | int(device, 16) << 3 | int(function, 16))
    except ValueError:
        return ""
    for file in Path(topology).glob("*/properties"):
        pairs = (line.split() for line in file.read_text().splitlines())
        values = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
        version = int(values.get("gfx_target_version", "0"))
        if version and (int(values.get("domain", "0")), int(values.get("location_id", "0"))) == wanted:
            return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    return ""
