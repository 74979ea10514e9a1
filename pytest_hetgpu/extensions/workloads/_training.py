"""Common parts of workloads that train a network (`remote/torch_training.py`)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pytest_hetgpu.extensions.workloads.base import ITEM_BYTES, Backend, Workload, WorkloadSettings
from pytest_hetgpu.model.records import MessagePoint

FEATURES = 32
PIXELS_AFTER = 8
"""What is left of FEATURES pixels after the second convolution, which takes every other row and column."""
_PARAMETERS = {
    "mlp": lambda hidden: (FEATURES + 1) * hidden + hidden + 1,
    "cnn": lambda hidden: 10 * hidden + (9 * hidden + 1) * hidden + PIXELS_AFTER * hidden + 1,
}
Places = Annotated[Literal["host", "device"], Field(description="where tensors are")]


class TorchSettings(WorkloadSettings):
    """Keys of programs of torch.distributed. The default backend is the transport's, else MPI."""

    backend: Backend | None = None
    memory: Places = "host"


class TrainingSettings(TorchSettings):
    """Keys of a training: `batch` samples per rank and step, `hidden` units or channels between the layers.

    `model` is a perceptron with one hidden layer, or a network of two convolutions for samples of 4 x 8 pixels.
    """

    model: Literal["mlp", "cnn"] = "mlp"
    epochs: Annotated[int, Field(ge=2)] = 3
    samples: Annotated[int, Field(ge=1)] = 4096
    batch: Annotated[int, Field(ge=1)] = 64
    hidden: Annotated[int, Field(ge=1)] = 64
    profile: Annotated[bool, Field(description="five further steps under the profiler of PyTorch: trace.json")] = False


class TorchWorkload(Workload):
    """A workload that requires torch.distributed."""

    Settings = TorchSettings
    torch = True
    backend = "mpi"


class Training(TorchWorkload):
    """Training of a small network. Its only point is all parameters together; the time is that of a step."""

    Settings = TrainingSettings
    settings: TrainingSettings
    scalings = ("weak", "strong")
    figures = {"samples": "1/s"}
    dtype: ClassVar[str]

    def program(self) -> tuple[str, ...]:
        asked = self.settings
        return (
            f"{self.operation}.py",
            *("--backend", self.backend),
            *("--memory", asked.memory),
            *("--epochs", str(asked.epochs)),
            *("--samples", str(asked.samples)),
            *("--batch", str(asked.batch)),
            *("--hidden", str(asked.hidden)),
            *(("--model", asked.model) if asked.model != "mlp" else ()),
            *(("--scaling", self.scaling) if self.scaling else ()),
            *(("--profile",) if asked.profile else ()),
        )

    @property
    def traced(self) -> bool:
        return self.settings.profile

    def points(self) -> tuple[MessagePoint, ...]:
        parameters = _PARAMETERS[self.settings.model](self.settings.hidden)
        return (MessagePoint(parameters * ITEM_BYTES[self.dtype], self.dtype),)

    def unsuitable(self, ranks: int) -> str | None:
        asked = self.settings
        if self.scaling == "strong" and asked.batch % ranks:
            return f"has a batch of {asked.batch} samples, which {ranks} ranks cannot share equally"
        step = asked.batch * (1 if self.scaling == "strong" else ranks)
        samples = asked.samples * (ranks if self.scaling == "weak" else 1)
        return f"has {samples} samples, {ranks} ranks take {step} in one step" if samples < step else None
