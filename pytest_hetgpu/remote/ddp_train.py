"""Data-parallel training with DistributedDataParallel: the loss falls, and all ranks end with equal parameters."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_training import arguments, compare, flatten, make_data, make_model, profile, report_training, size_of, train
from torch_world import join

DTYPE = torch.float32


def main() -> None:
    """Train, and compare every parameter with rank 0's, bit by bit."""
    options = arguments()
    world = join(options.backend, options.memory)
    model = make_model(options.model, options.hidden, world.device, DTYPE)
    devices = [world.device] if world.device.type == "cuda" else None
    data = make_data(options, world.ranks, world.device, DTYPE)
    whole = DistributedDataParallel(model, device_ids=devices)
    record = train(world, whole, data, options, (world.rank, world.ranks))
    mine = flatten(model.parameters())
    roots = mine.clone()
    dist.broadcast(roots, 0)
    fields = {"size": size_of(model), "dtype": "float32"}
    wrong = compare(world, fields, mine, roots, torch.eq)
    profile(world, whole, data, options)
    report_training("ddp_train", world, record, (fields["size"], "float32"), wrong)


if __name__ == "__main__":
    main()
