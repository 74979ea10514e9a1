"""The interface that a transport pins on a node, and cells that a host without a network cannot run."""

from __future__ import annotations

from dataclasses import replace

from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import Node


def netdev(node: Node, asked: str | None, key: str = "netdev") -> InterfaceChoice:
    """Return the interface of the transport, else the node's known one, else the fabric's."""
    if asked:
        return InterfaceChoice(asked, f"{key} of the transport names it")
    if node.interface is not None:
        return node.interface
    return replace(InterfaceChoice(), name=node.hardware.fabric.netdev or "")


def nothing_up(node: Node, program: str) -> str | None:
    """Return why no TCP, not even an Open MPI daemon, can run on a node; None if an interface is up."""
    if node.interface is None or node.interface.kind != "nothing":
        return None
    return (
        f"{program} needs an interface that is up, and node {node.index} ({node.hardware.name} on {node.host}) has "
        f"none, not even lo ({node.interface.why}); ip link set lo up"
    )


def only_loopback(node: Node, asked: str | None, program: str) -> str | None:
    """Return why a library that does not connect over loopback cannot run on a node; None if it can.

    A loopback that the matrix names is accepted.
    """
    if asked or node.interface is None or node.interface.kind != "loopback":
        return None
    return (
        f"{program} does not connect ranks over lo, and node {node.index} ({node.hardware.name} on {node.host}) has "
        f"nothing else ({node.interface.why}); bring an interface up with an IPv4 address, or name one in the matrix"
    )
