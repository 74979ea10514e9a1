"""Sharded training with FSDP2: parameters, gradients and optimizer state divided among the ranks."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads._training import Training


class FsdpTrain(Training):
    """The parameters gathered at the end equal those of the same training without sharding."""

    operation = "fsdp_train"
    dtype = "float64"
