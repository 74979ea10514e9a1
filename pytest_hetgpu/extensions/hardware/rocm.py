"""AMD accelerators."""

from __future__ import annotations

from pytest_hetgpu.extensions.hardware.base import Platform
from pytest_hetgpu.model.job import ContainerOptions


class Rocm(Platform):
    """ROCm devices; the amdgpu kernel driver creates both device nodes.

    A container needs both devices, the group that owns them, and tracing without seccomp for memory mapped between
    processes: https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html.
    """

    devices = ("/dev/kfd", "/dev/dri")
    hint = "the amdgpu driver"
    container = ContainerOptions(
        devices=("/dev/kfd", "/dev/dri"),
        groups=("video",),
        cap_add=("SYS_PTRACE",),
        security=("seccomp=unconfined",),
        ipc="host",
        shm=8 << 30,
        ulimits={"memlock": -1},
    )
