"""What transports of torch.distributed share."""

from __future__ import annotations

from pytest_hetgpu.model import Node

VENDORS = ("Open MPI", "MPICH", "torch")
"""Whatever MPI starts the ranks, or none."""


def netdev(node: Node, asked: str | None, variable: str) -> str:
    """The interface to pin: the transport's own, that of the hardware's variable, the fabric's.

    Without any it is loopback where all ranks share the host.
    """
    hardware = node.hardware
    named = asked or hardware.env.get(variable) or hardware.fabric.netdev
    return named or ("lo" if hardware.runtime == "local" else "")
