"""What transports of torch.distributed share."""

from __future__ import annotations

from pytest_hetgpu.model import Node

VENDORS = ("Open MPI", "MPICH", "torch")
"""Whatever MPI starts the ranks, or none."""


def netdev(node: Node, asked: str | None) -> str:
    """The interface to pin: the transport's own, else the fabric's, else loopback where all ranks share the host."""
    return asked or node.hardware.fabric.netdev or ("lo" if node.hardware.runtime == "local" else "")
