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
from records import SweepPoint, WrongElements, emit, emit_checks, emit_wrong, now
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


class Learner(NamedTuple):
    """A model, and its share of each batch: index, and number of shares.

    `after_epoch` is called with the number of each epoch, outside the timed part.
    """

    model: torch.nn.Module
    share: Tuple[int, int]
    after_epoch: Callable[[int], None]


def train(world: ProcessGroup, learner: Learner, data: TrainingData, options: argparse.Namespace) -> TrainingRecord:
    """Train on the samples of the learner's share. Each step divides the same batch among the shares."""
    model, (index, shares), after_epoch = learner
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
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
        after_epoch(epoch)
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


def report_training(name: str, record: TrainingRecord, checks: ParameterChecks) -> None:
    """Report time, rate and check of a training, and leave the process group."""
    world, point, wrong = checks.world, checks.point, checks.wrong
    losses = mean_of_ranks(world, record.losses)
    seconds = mean_of_ranks(world, record.seconds)
    if world.rank == 0:
        told = {**point.fields(), "ranks": world.ranks}
        for repeat, step in enumerate(seconds):
            emit(t="row", op=name, **told, iterations=record.steps, seconds=step, repeat=repeat, at=now())
            emit(t="figure", metric="samples", value=record.batch / step, unit="1/s", repeat=repeat, **told)
        emit(t="figure", metric="loss", value=losses[-1], unit="", **told)
    if not losses[-1] <= LEAST_FALL * losses[0]:
        wrong += 1
        values = (f"at most {LEAST_FALL * losses[0]:.6g}", f"{losses[-1]:.6g}")
        last = len(losses) - 1
        emit_wrong(world.rank, point, last, WrongElements("the loss", 1, len(losses), last, *values))
    emit_checks(world.rank, {point: wrong})
    leave(world)


def flatten(parameters: Any) -> torch.Tensor:
    """Concatenate all parameters."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in parameters])


class ParameterChecks:
    """The comparison of all parameters after each epoch; `wrong` counts those that differ in the first bad one.

    A wrong gradient of any step changes parameters, and they differ from then on. So one comparison checks all steps
    of an epoch.
    """

    def __init__(self, world: ProcessGroup, point: SweepPoint) -> None:
        self.world, self.point, self.wrong = world, point, 0

    def compare(self, epoch: int, got: torch.Tensor, wanted: torch.Tensor, equal: torch.Tensor) -> None:
        """Count the parameters that are not `equal`, and report the first; later epochs only repeat that."""
        if self.wrong or bool(equal.all()):
            return
        self.wrong, index = int((~equal).sum()), int((~equal).to(torch.uint8).argmax())
        values = (repr(float(wanted[index])), repr(float(got[index])))
        found = WrongElements("the parameters", self.wrong, got.numel(), index, *values)
        emit_wrong(self.world.rank, self.point, epoch, found)
