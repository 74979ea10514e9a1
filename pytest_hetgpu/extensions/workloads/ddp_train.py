"""Data-parallel training with DistributedDataParallel, as most users of several GPUs train."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads._training import Training


class DdpTrain(Training):
    """The loss falls, and all ranks end with equal parameters; `samples` is how many a second all ranks train on."""

    operation = "ddp_train"
    dtype = "float32"
