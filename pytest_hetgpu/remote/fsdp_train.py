"""Sharded training: each rank keeps a part of the parameters (FSDP2), and together they learn as one process would.

Every rank also trains the whole network alone on all samples. The parameters gathered after each epoch must equal those
of that run. Only the order of summing gradients may differ, which in float64 leaves far less than the tolerance.
"""

from __future__ import annotations

from typing import List

import torch
from records import SweepPoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch_training import (
    Learner,
    ParameterChecks,
    arguments,
    flatten,
    make_data,
    make_model,
    profile,
    report_training,
    size_of,
    train,
)
from torch_world import join

DTYPE = torch.float64
RELATIVE, ABSOLUTE = 1e-8, 1e-10


def main() -> None:
    """Train sharded and whole, gather the parameters, and compare them."""
    options = arguments()
    world = join(options.backend, options.memory)
    data = make_data(options, world.ranks, world.device, DTYPE)
    alone = make_model(options.model, options.hidden, world.device, DTYPE)
    trained: List[torch.Tensor] = []
    # `flatten` copies, so later epochs do not change it.
    learner = Learner(alone, (0, 1), lambda _: trained.append(flatten(alone.parameters())))
    train(world, learner, data, options)
    model = make_model(options.model, options.hidden, world.device, DTYPE)
    mesh = init_device_mesh(world.device.type, (world.ranks,))
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    checks = ParameterChecks(world, SweepPoint(size_of(alone), "float64"))

    def compare_with_one_process(epoch: int) -> None:
        gathered = flatten([parameter.full_tensor() for parameter in model.parameters()])
        equal = torch.isclose(gathered, trained[epoch], rtol=RELATIVE, atol=ABSOLUTE)
        checks.compare(epoch, gathered, trained[epoch], equal)

    record = train(world, Learner(model, (world.rank, world.ranks), compare_with_one_process), data, options)
    profile(world, model, data, options)
    report_training("fsdp_train", record, checks)


if __name__ == "__main__":
    main()
