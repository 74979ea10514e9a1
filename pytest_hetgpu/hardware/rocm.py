"""AMD accelerators."""

from __future__ import annotations

from pytest_hetgpu.hardware.base import Platform


class Rocm(Platform):
    """ROCm devices; both nodes come from the amdgpu kernel driver."""

    devices = ("/dev/kfd", "/dev/dri")
    hint = "the amdgpu driver"
