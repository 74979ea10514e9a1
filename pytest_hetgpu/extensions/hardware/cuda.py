"""NVIDIA accelerators."""

from __future__ import annotations

from pytest_hetgpu.extensions.hardware.base import Platform
from pytest_hetgpu.model.job import ContainerOptions


class Cuda(Platform):
    """CUDA devices; the control device appears with the kernel driver.

    Containers get the GPUs from the NVIDIA container toolkit. Tracing lets ranks of one host copy from each other's
    memory (CMA). Shared memory holds the buffers of NCCL and UCX; the default of 64 MB in Docker is too small for them.
    """

    devices = ("/dev/nvidiactl",)
    hint = "an NVIDIA driver"
    container = ContainerOptions(gpus="all", cap_add=("SYS_PTRACE",), ipc="host", shm=8 << 30, ulimits={"memlock": -1})
