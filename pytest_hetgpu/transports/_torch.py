"""What transports of torch.distributed share."""

from __future__ import annotations

from pytest_hetgpu.model import Node, Stack

VENDORS = ("Open MPI", "MPICH", "torch")
"""The stacks whose interpreter may have PyTorch: any."""


def lacking(stack: Stack) -> str | None:
    """Why a stack cannot run this; None where its interpreter has PyTorch, or where only the node knows."""
    if stack.torch:
        return None
    return f"stack {stack.name} has no PyTorch (known: openmpi-5-torch, torch)"


def netdev(node: Node, asked: str | None) -> str:
    """The interface to pin: the transport's own, else the fabric's, else loopback where all ranks share the host."""
    return asked or node.hardware.fabric.netdev or ("lo" if node.hardware.runtime == "local" else "")
