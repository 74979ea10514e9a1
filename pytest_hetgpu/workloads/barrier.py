"""A barrier over every rank."""

from __future__ import annotations

from pytest_hetgpu.model import Point
from pytest_hetgpu.workloads.base import Repeated, Workload


class Barrier(Workload):
    """Timed, and verified: nobody gets through before a rank that comes late. It has one point, without data."""

    Settings = Repeated
    settings: Repeated
    operation = "barrier"

    def program(self) -> tuple[str, ...]:
        iterations, warmup = str(self.settings.iterations), str(self.settings.warmup)
        by_torch = ("torch_sweep.py", "--operation", "barrier", "--backend", self.backend)
        program = by_torch if self.backend else ("barrier.py",)
        return *program, "--iterations", iterations, "--warmup", warmup

    def points(self) -> tuple[Point, ...]:
        return (Point(0, "none"),)
