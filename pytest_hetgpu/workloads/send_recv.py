"""Ping-pong between neighbouring ranks; a measurement is one direction."""

from __future__ import annotations

from pytest_hetgpu.workloads.base import SweepWorkload, needs_pairs


class SendRecv(SweepWorkload):
    """Ranks 2i and 2i+1 send to each other."""

    operation = "send_recv"
    file = "send_recv.py"

    def unsuitable(self, ranks: int) -> str | None:
        return needs_pairs(ranks)
