"""Sharded training: each rank keeps a part of the parameters (FSDP2), and together they learn as one process would.

Every rank also trains the whole network alone on all samples. The parameters gathered at the end must equal those of
that run. Only the order of summing gradients may differ, which in float64 leaves far less than the tolerance.
"""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch_training import arguments, compare, flatten, make_data, make_model, profile, report_training, size_of, train
from torch_world import join

DTYPE = torch.float64
RELATIVE, ABSOLUTE = 1e-8, 1e-10


def main() -> None:
    """Train sharded and whole, gather the parameters, and compare them."""
    options = arguments()
    world = join(options.backend, options.memory)
    data = make_data(options, world.ranks, world.device, DTYPE)
    alone = make_model(options.model, options.hidden, world.device, DTYPE)
    train(world, alone, data, options, (0, 1))
    model = make_model(options.model, options.hidden, world.device, DTYPE)
    mesh = init_device_mesh(world.device.type, (world.ranks,))
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    record = train(world, model, data, options, (world.rank, world.ranks))
    gathered = flatten([parameter.full_tensor() for parameter in model.parameters()])
    fields = {"size": size_of(alone), "dtype": "float64"}
    wrong = compare(
        world,
        fields,
        gathered,
        flatten(alone.parameters()),
        lambda got, wanted: torch.isclose(got, wanted, rtol=RELATIVE, atol=ABSOLUTE),
    )
    profile(world, model, data, options)
    report_training("fsdp_train", world, record, (fields["size"], "float64"), wrong)


if __name__ == "__main__":
    main()
