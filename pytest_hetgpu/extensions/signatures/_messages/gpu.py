"""Errors of the CUDA and HIP runtimes: name, text, and meaning.

Texts: cudaGetErrorString (CUDA Runtime API reference, "Data types used by CUDA Runtime") and hip_error.cpp of ROCm/clr.
"""

from __future__ import annotations

from typing import NamedTuple

from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MEMORY, _ARCH = Kind.OUT_OF_MEMORY, Kind.GPU_ARCH_MISMATCH

# Name without cuda's or hip's prefix; the texts that mean it, newest release first.
_TEXTS: tuple[tuple[str, Kind, tuple[str, ...]], ...] = (
    ("OutOfMemory", _MEMORY, ("out of memory",)),
    (
        "NoBinaryForGpu",
        _ARCH,
        ("no kernel image is available for execution on the device", "Unable to find code object"),
    ),
    ("InvalidDeviceFunction", _ARCH, ("invalid device function",)),
    ("InvalidImage", _ARCH, ("device kernel image is invalid",)),
    ("UnsupportedPtxVersion", _ARCH, ("the provided PTX was compiled with an unsupported toolchain",)),
    ("InvalidPtx", _ARCH, ("a PTX JIT compilation failed",)),
    ("NoDevice", Kind.ERROR, ("no CUDA-capable device is detected", "no ROCm-capable device is detected")),
    (
        "InsufficientDriver",
        Kind.ERROR,
        ("CUDA driver version is insufficient for CUDA runtime version", "driver version is insufficient for runtime"),
    ),
    ("InvalidDevice", Kind.ERROR, ("invalid device ordinal",)),
    ("IllegalAddress", Kind.ERROR, ("an illegal memory access was encountered",)),
    ("PriorLaunchFailure", Kind.ERROR, ("unspecified launch failure in prior launch",)),
    ("LaunchFailure", Kind.ERROR, ("unspecified launch failure",)),
    ("Assert", Kind.ERROR, ("device-side assert triggered",)),
    ("IllegalInstruction", Kind.ERROR, ("an illegal instruction was encountered",)),
    ("MisalignedAddress", Kind.ERROR, ("misaligned address",)),
    ("HardwareStackError", Kind.ERROR, ("hardware stack error",)),
    ("LaunchTimeout", Kind.ERROR, ("the launch timed out and was terminated",)),
    ("LaunchOutOfResources", Kind.ERROR, ("too many resources requested for launch",)),
    ("ECCUncorrectable", Kind.ERROR, ("uncorrectable ECC error encountered",)),
    ("NvlinkUncorrectable", Kind.ERROR, ("uncorrectable NVLink error detected during the execution",)),
    ("Contained", Kind.ERROR, ("Invalid access of peer GPU memory over nvlink or a hardware error",)),
    ("DevicesUnavailable", Kind.ERROR, ("all CUDA-capable devices are busy or unavailable",)),
    ("SystemNotReady", Kind.ERROR, ("system not yet initialized",)),
    ("SystemDriverMismatch", Kind.ERROR, ("system has unsupported display driver / cuda driver combination",)),
    ("CompatNotSupportedOnDevice", Kind.ERROR, ("forward compatibility was attempted on non supported HW",)),
    ("MpsConnectionFailed", Kind.ERROR, ("MPS client failed to connect to the MPS control daemon or the MPS server",)),
    ("MpsClientTerminated", Kind.ERROR, ("MPS client was terminated",)),
    ("PeerAccessUnsupported", Kind.ERROR, ("peer access is not supported between these two devices",)),
    ("PeerAccessNotEnabled", Kind.ERROR, ("peer access has not been enabled",)),
    ("HostMemoryAlreadyRegistered", Kind.ERROR, ("part or all of the requested memory range is already mapped",)),
    ("HostMemoryNotRegistered", Kind.ERROR, ("pointer does not correspond to a registered memory region",)),
    ("ContextIsDestroyed", Kind.ERROR, ("context is destroyed",)),
    ("DeviceUninitialized", Kind.ERROR, ("invalid device context",)),
    ("Deinitialized", Kind.ERROR, ("driver shutting down",)),
    ("NotInitialized", Kind.ERROR, ("initialization error",)),
    ("InvalidConfiguration", Kind.ERROR, ("invalid configuration argument",)),
    ("InvalidDevicePointer", Kind.ERROR, ("invalid device pointer",)),
    ("InvalidSymbol", Kind.ERROR, ("invalid device symbol",)),
    ("InvalidHandle", Kind.ERROR, ("invalid resource handle",)),
    ("SymbolNotFound", Kind.ERROR, ("named symbol not found",)),
    ("SharedObjectInitFailed", Kind.ERROR, ("shared object initialization failed",)),
    ("OperatingSystem", Kind.ERROR, ("OS call failed or operation not supported on this OS",)),
    ("CooperativeLaunchTooLarge", Kind.ERROR, ("too many blocks in cooperative launch",)),
    ("StreamCapture", Kind.ERROR, ("operation not permitted when stream is capturing",)),
    ("StreamCapture", Kind.ERROR, ("operation failed due to a previous error during capture",)),
    ("NotSupported", Kind.ERROR, ("operation not supported",)),
    ("InvalidValue", Kind.ERROR, ("invalid argument",)),
    ("Unknown", Kind.ERROR, ("unknown error",)),
)

# The driver API's and the runtimes' names that differ from the above: cuda.h, driver_types.h, hip_runtime_api.h.
_SAME = {
    "MemoryAllocation": "OutOfMemory",
    "NoKernelImageForDevice": "NoBinaryForGpu",
    "InvalidKernelImage": "InvalidImage",
    "ECCNotCorrectable": "ECCUncorrectable",
    "InitializationError": "NotInitialized",
    "CudartUnloading": "Deinitialized",
    "InvalidContext": "DeviceUninitialized",
    "InvalidResourceHandle": "InvalidHandle",
    "LaunchTimeOut": "LaunchTimeout",
    "InvalidAddressSpace": "IllegalAddress",
    "NoBinaryForGPU": "NoBinaryForGpu",
}
_KEYS = {
    "OutOfMemory": "out-of-memory",
    "NoBinaryForGpu": "no-kernel-image",
    "InvalidDeviceFunction": "no-kernel-image",
    "InvalidImage": "no-kernel-image",
}
_NAMED = lazy(r"\b(?:cuda|hip)Error_?(?P<name>[A-Z]\w+)\b|\bCUDA_ERROR_(?P<upper>[A-Z0-9_]+)\b")
_KINDS = {name: kind for name, kind, _ in _TEXTS}
_BY_TEXT = tuple((text, name, kind) for name, kind, texts in _TEXTS for text in texts)


class GpuError(NamedTuple):
    """An error of a GPU's runtime. `name` is one for CUDA and HIP: `NoDevice`, `IllegalAddress`."""

    name: str
    kind: Kind

    @property
    def key(self) -> str:
        """Return a key such as `NoDevice@gpu`; all errors about a binary without code for the device share one."""
        return f"{_KEYS.get(self.name, self.name)}@gpu"


def gpu_error(text: str) -> GpuError | None:
    """Return the error that a text names or describes; None if it holds neither name nor text of the runtimes."""
    found = _NAMED.search(text)
    if found and (found["name"] or found["upper"]) not in ("String", "Name", "Code", "Enum", "_t"):
        name = found["name"] or "".join(word.capitalize() for word in found["upper"].split("_"))
        name = _SAME.get(name, name)
        return GpuError(name, _KINDS.get(name, Kind.ERROR))
    return next((GpuError(name, kind) for words, name, kind in _BY_TEXT if words in text), None)
