"""NVIDIA accelerators."""

from __future__ import annotations

from pytest_hetgpu.hardware.base import Platform


class Cuda(Platform):
    """CUDA devices; the control device appears with the kernel driver."""

    devices = ("/dev/nvidiactl",)
    hint = "an NVIDIA driver"
