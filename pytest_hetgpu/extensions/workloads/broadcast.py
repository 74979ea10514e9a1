"""Rank 0's data, on every rank."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import SweepWorkload


class Broadcast(SweepWorkload):
    """A size is one rank's buffer. MPI has one buffer for it, so there is no in place."""

    operation = "broadcast"
