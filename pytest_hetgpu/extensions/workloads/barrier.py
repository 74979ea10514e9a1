"""A barrier over every rank."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import TimedSettings, Workload
from pytest_hetgpu.model.records import MessagePoint


class Barrier(Workload):
    """A timed and verified barrier: no rank passes before a late rank. It has one point, without data."""

    Settings = TimedSettings
    settings: TimedSettings
    operation = "barrier"
    torch = True

    def program(self) -> tuple[str, ...]:
        by_torch = ("torch_sweep.py", "--operation", "barrier", "--backend", self.backend)
        return *(by_torch if self.backend else ("barrier.py",)), *self.settings.timing()

    def points(self) -> tuple[MessagePoint, ...]:
        return (MessagePoint(0, "none"),)
