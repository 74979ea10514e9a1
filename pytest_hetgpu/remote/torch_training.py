"""The common part of the training programs: a small regression task with a known answer, and its report.

The task is a student network that learns a fixed teacher's outputs. Data, teacher and first weights come from fixed
seeds. So every rank can make all of them, and runs with any number of ranks start equal.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Callable, List, NamedTuple, Tuple

import torch
import torch.distributed as dist
from records import emit, emit_checks, now
from torch_world import ProcessGroup, leave

SEED = 20240229
FEATURES = 32
PIXELS = 4, 8  # a sample's features as rows and columns, for convolutions
LEAST_FALL = 0.5  # the last epoch's loss is at most this part of the first's


class TrainingData(NamedTuple):
    """All samples, `inputs` of shape (samples, FEATURES) and `targets` of shape (samples, 1)."""

    inputs: torch.Tensor
    targets: torch.Tensor


class TrainingRecord(NamedTuple):
    """The numbers of a training run: mean loss of each epoch, and seconds per step of each timed one.

    An epoch has `steps`, each on `batch` samples of all ranks.
    """

    losses: List[float]
    seconds: List[float]
    steps: int
    batch: int


def arguments() -> argparse.Namespace:
    """Parse the command line of a training program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--memory", choices=("host", "device"), default="host")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=64, help="samples per rank and step")
    parser.add_argument("--hidden", type=int, default=64, help="units or channels of the hidden layers")
    parser.add_argument("--model", choices=("mlp", "cnn"), default="mlp")
    parser.add_argument("--profile", action="store_true", help="report a trace of further steps")
    parser.add_argument("--scaling", choices=("weak", "strong"), help="samples and batch of each rank, or of all")
    return parser.parse_args()


def make_data(options: argparse.Namespace, ranks: int, device: torch.device, dtype: torch.dtype) -> TrainingData:
    """Make the same samples on every rank."""
    samples = options.samples * (ranks if options.scaling == "weak" else 1)
    dice = torch.Generator().manual_seed(SEED)
    inputs = torch.randn(samples, FEATURES, generator=dice, dtype=torch.float64)
    teacher = torch.randn(FEATURES, 1, generator=dice, dtype=torch.float64)
    targets = torch.tanh(inputs @ teacher / FEATURES**0.5)
    return TrainingData(inputs.to(device, dtype), targets.to(device, dtype))


def make_model(kind: str, hidden: int, device: torch.device, dtype: torch.dtype) -> torch.nn.Module:
    """Make the network with its first weights, the same on every rank."""
    torch.manual_seed(SEED)
    nn = torch.nn
    if kind == "cnn":
        convolutions = (
            nn.Conv2d(1, hidden, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(hidden, hidden, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        pixels = PIXELS[0] * PIXELS[1] // 4
        layers = (nn.Unflatten(1, (1, *PIXELS)), *convolutions, nn.Flatten(), nn.Linear(pixels * hidden, 1))
        return nn.Sequential(*layers).to(device, dtype)
    return nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, 1)).to(device, dtype)


def train(
    world: ProcessGroup, model: torch.nn.Module, data: TrainingData, options: argparse.Namespace, share: Tuple[int, int]
) -> TrainingRecord:
    """Train on the samples of share (index, number of shares). Each step divides the same batch among the shares."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    index, shares = share
    whole = options.batch * (1 if options.scaling == "strong" else world.ranks)
    part = whole // shares
    steps = max(1, len(data.inputs) // whole)
    losses: List[float] = []
    seconds: List[float] = []
    for epoch in range(options.epochs):
        world.synchronize()
        started, total = time.perf_counter(), 0.0
        for step in range(steps):
            low = step * whole + index * part
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(data.inputs[low : low + part]), data.targets[low : low + part])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(loss.detach())
        world.synchronize()
        # The first epoch holds what happens once: connections, buckets, kernels.
        if epoch > 0 or options.epochs == 1:
            seconds.append((time.perf_counter() - started) / steps)
        losses.append(total / steps)
    return TrainingRecord(losses, seconds, steps, whole)


def profile(world: ProcessGroup, model: torch.nn.Module, data: TrainingData, options: argparse.Namespace) -> None:
    """Report a trace of further steps on the first samples, if that is asked for."""
    if not options.profile:
        return
    from torch_profile import profile_steps

    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    part = options.batch // (world.ranks if options.scaling == "strong" else 1)
    low = world.rank * part
    inputs, targets = data.inputs[low : low + part], data.targets[low : low + part]

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    profile_steps(world, step, {"size": size_of(model)})


def mean_of_ranks(world: ProcessGroup, values: List[float]) -> List[float]:
    """Return the mean over ranks of each value."""
    found = torch.tensor(values, dtype=torch.float64, device=world.exchange_device)
    dist.all_reduce(found)
    return [float(value) / world.ranks for value in found]


def size_of(model: torch.nn.Module) -> int:
    """Return the bytes of all parameters."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def report_training(name: str, world: ProcessGroup, record: TrainingRecord, point: Tuple[int, str], wrong: int) -> None:
    """Report time, rate and check of a training, and leave the process group."""
    size, dtype = point
    losses = mean_of_ranks(world, record.losses)
    seconds = mean_of_ranks(world, record.seconds)
    fields = {"size": size, "dtype": dtype}
    if world.rank == 0:
        told = {**fields, "ranks": world.ranks}
        for repeat, step in enumerate(seconds):
            emit(t="row", op=name, **told, iterations=record.steps, seconds=step, repeat=repeat, at=now())
            emit(t="figure", metric="samples", value=record.batch / step, unit="1/s", repeat=repeat, **told)
        emit(t="figure", metric="loss", value=losses[-1], unit="", **told)
    if not losses[-1] <= LEAST_FALL * losses[0]:
        wrong += 1
        shown = {"expected": f"at most {LEAST_FALL * losses[0]:.6g}", "got": f"{losses[-1]:.6g}"}
        emit(t="wrong", rank=world.rank, **fields, buffer="the loss", index=len(losses) - 1, count=1, **shown)
    emit_checks(world.rank, [[size, dtype, wrong]])
    leave(world)


def flatten(parameters: Any) -> torch.Tensor:
    """Concatenate all parameters."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in parameters])


def compare(
    world: ProcessGroup,
    fields: Any,
    got: torch.Tensor,
    wanted: torch.Tensor,
    equal: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> int:
    """Count the parameters that differ, and report the first."""
    differs = ~equal(got, wanted)
    count = int(differs.sum())
    if count:
        index = int(differs.to(torch.uint8).argmax())
        shown = {"expected": repr(float(wanted[index])), "got": repr(float(got[index]))}
        emit(t="wrong", rank=world.rank, **fields, buffer="the parameters", index=index, count=count, **shown)
    return count
