"""Ping-pong between neighbouring ranks; a measurement is one direction."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import SweepWorkload


class SendRecv(SweepWorkload):
    """Ranks 2i and 2i+1 send to each other in turn."""

    operation = "send_recv"
    paired = True
