"""Common parts of the transports of torch.distributed."""

from __future__ import annotations

from pytest_hetgpu.model.interfaces import LOOPBACK, InterfaceChoice
from pytest_hetgpu.model.job import Node

VENDORS = ("Open MPI", "MPICH", "torch")
"""Any MPI may start the ranks, or none."""


def netdev(node: Node, asked: str | None, pin: str) -> InterfaceChoice:
    """Return the interface to pin: the transport's own, else that of the hardware's variable, else the fabric's.

    Ranks of this machine use loopback.
    """
    own = asked or node.hardware.env.get(pin)
    if own:
        return InterfaceChoice(
            own, f"{'netdev of the transport' if asked else f'{pin} of {node.hardware.name}'} names it"
        )
    local, known = node.hardware.runtime == "local", node.interface or InterfaceChoice()
    name = node.hardware.fabric.netdev or (LOOPBACK if local else "")
    if known.name == name:
        return known
    return InterfaceChoice(name, "all ranks are on one host" if name == LOOPBACK else known.why)
