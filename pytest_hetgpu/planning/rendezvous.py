"""The meeting point of ranks of torch.distributed, and the variables that name it. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from pytest_hetgpu.config.inventory.hosts import HERE
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.launchers.base import Launcher, Rendezvous
from pytest_hetgpu.model.job import Node, Scenario

_WITHOUT_STORE = "mpi"
"""The backend whose ranks know each other from MPI: they never connect to MASTER_ADDR."""


def rendezvous(scenario: Scenario, nodes: Sequence[Node], master: str) -> Rendezvous:
    """Return the rendezvous: the first node of the hardware `master`, or of all, by a name that all nodes resolve.

    The port is the cell's own, below the range of ephemeral ports.
    """
    first = next((node for node in nodes if node.hardware.name == master), nodes[0])
    here = all(node.hardware.runtime == "local" for node in nodes) or len(nodes) == 1
    address = "127.0.0.1" if here else first.host if first.name in HERE else first.name
    port = 20_000 + zlib.crc32(f"{scenario.matrix}/{scenario.id}".encode()) % 10_000
    return Rendezvous(address, port, first.index)


def torch_variables(
    nodes: Sequence[Node], launcher: Launcher, meeting: Rendezvous, backend: str
) -> dict[int, dict[str, str]]:
    """Return the variables of ranks of torch.distributed besides the transport's settings, by node; none without it.

    Without OMP_NUM_THREADS each rank would use all cores of its host and slow down its neighbours. Raises NotHere if
    ranks would wait at a node that serves no store: rank 0 does, unless agents of torchrun meet first.
    """
    if not backend:
        return {}
    if meeting.index and backend != _WITHOUT_STORE and not launcher.per_node:
        raise NotHere(
            f"master is node {meeting.index}, but ranks of {backend} meet at rank 0: "
            f"make it the first node, or use launcher torchrun or backend {_WITHOUT_STORE}"
        )
    each = {"OMP_NUM_THREADS": "1", **launcher.environment(meeting)}
    own = launcher.per_node and len(nodes) > 1
    return {node.index: {**each, **({"HETGPU_NODE": str(node.index)} if own else {})} for node in nodes}
