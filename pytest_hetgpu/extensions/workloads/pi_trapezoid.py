"""Pi by the trapezoid rule, a part of the integral on each rank: the first distributed program of many courses."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pytest_hetgpu.extensions.workloads._training import TorchSettings, TorchWorkload
from pytest_hetgpu.model.records import MessagePoint


class PiSettings(TorchSettings):
    """`intervals` of the whole integral, which is computed `repeats` times."""

    intervals: Annotated[int, Field(ge=1)] = 1_000_000
    repeats: Annotated[int, Field(ge=1, le=1000)] = 5


class PiTrapezoid(TorchWorkload):
    """The integral, correct within the rule's own error bound on every rank."""

    Settings = PiSettings
    settings: PiSettings
    scalings = ("weak", "strong")
    operation = "pi_trapezoid"
    figures = {"intervals": "1/s"}

    def program(self) -> tuple[str, ...]:
        asked = self.settings
        where = ("--backend", self.backend, "--memory", asked.memory)
        scaling = ("--scaling", self.scaling) if self.scaling else ()
        repeats = ("--repeats", str(asked.repeats)) if asked.repeats > 1 else ()
        return "pi_trapezoid.py", *where, "--intervals", str(asked.intervals), *repeats, *scaling

    def points(self) -> tuple[MessagePoint, ...]:
        return (MessagePoint(8, "float64"),)
