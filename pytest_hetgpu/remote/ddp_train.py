"""Data-parallel training with DistributedDataParallel: the loss falls, and all ranks have equal parameters."""

from __future__ import annotations

import torch
import torch.distributed as dist
from records import SweepPoint
from torch.nn.parallel import DistributedDataParallel
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

DTYPE = torch.float32


def main() -> None:
    """Train, and compare every parameter with rank 0's after each epoch, bit by bit."""
    options = arguments()
    world = join(options.backend, options.memory)
    model = make_model(options.model, options.hidden, world.device, DTYPE)
    devices = [world.device] if world.device.type == "cuda" else None
    data = make_data(options, world.ranks, world.device, DTYPE)
    whole = DistributedDataParallel(model, device_ids=devices)
    checks = ParameterChecks(world, SweepPoint(size_of(model), "float32"))

    def compare_with_root(epoch: int) -> None:
        mine = flatten(model.parameters())
        roots = mine.clone()
        dist.broadcast(roots, 0)
        checks.compare(epoch, mine, roots, torch.eq(mine, roots))

    record = train(world, Learner(whole, (world.rank, world.ranks), compare_with_root), data, options)
    profile(world, whole, data, options)
    report_training("ddp_train", record, checks)


if __name__ == "__main__":
    main()
