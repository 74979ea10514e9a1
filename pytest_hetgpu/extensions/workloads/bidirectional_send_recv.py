"""Sends between neighbouring ranks in both directions at once; a measurement is one of them."""

from __future__ import annotations

from pytest_hetgpu.extensions.workloads.base import SweepWorkload


class BidirectionalSendRecv(SweepWorkload):
    """Ranks 2i and 2i+1 send to each other at the same time."""

    operation = "bidirectional_send_recv"
    paired = True
