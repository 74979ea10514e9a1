"""Facts that only a running node can give to a plan: its folder, its user and its network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_hetgpu.cluster import launchers
from pytest_hetgpu.cluster import routes as routing
from pytest_hetgpu.config.inventory.hosts import HERE
from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.extensions.fabrics.base import FabricKind
from pytest_hetgpu.extensions.probes import rdma
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.runtimes.base import RemoteNode
from pytest_hetgpu.extensions.runtimes.process.interface_names import kind_of
from pytest_hetgpu.model.facts import Environment
from pytest_hetgpu.model.interfaces import (
    LOOPBACK,
    ROUTES,
    Interface,
    InterfaceChoice,
    Network,
    choose_interface,
    interface_of,
    routed_interfaces,
)
from pytest_hetgpu.model.job import Fabric, Node
from pytest_hetgpu.planning.placement import DiscoveredNode

_PORT = re.compile(r"rdma\.(.+):(\d+)\.link_layer")
_PREFIX = re.compile(r"/[A-Za-z0-9_./+@=~-]*")
# A node may answer anything: only valid names become parts of command lines.
_DEVICE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+~-]*")
# At most so many other hosts: the node resolves their names one after another.
_OTHERS = 4
# DEVTYPE of sysfs for interfaces that lead into another network than that of the adapter below them.
_TUNNELS = ("tun", "vxlan", "geneve", "wireguard", "gre", "gretap", "ppp", "ipip")


def discover(
    node: Node, member: RemoteNode, seen: Environment, *, alone: bool = False, others: Sequence[str] = ()
) -> DiscoveredNode:
    """Return the facts of a running node. Unknown parts of the network stay open. A lost node raises no error.

    `alone` is True if all nodes of the job are on its host; `others` are the hosts of the others.
    """
    fabric = node.hardware.fabric
    chosen = roce(fabric, seen)
    if chosen:
        hca, gid_index = _device(chosen.hca, chosen.port), chosen.gid_index
        interface = InterfaceChoice(chosen.netdev, f"the one of GID {gid_index} of {chosen.hca}")
    else:
        hca, gid_index = infiniband(fabric, seen), None
        alone = alone or node.host in HERE
        interface = (
            InterfaceChoice()
            if _is_known(node, alone=alone)
            else _interface(member, seen, () if alone else (node.host, *others))
        )
    interface = interface if _DEVICE.fullmatch(interface.name) else replace(interface, name="")
    # Loopback is no interface of a fabric: ranks on one host reach each other anyway.
    netdev = "" if (fabric.netdev and not chosen) or node.host in HERE else interface.name
    hca = hca if _DEVICE.fullmatch(hca) else ""
    prefix = _prefix(node, member)
    ours = node.stack is not None and seen.text(launchers.VENDOR) == node.stack.vendor
    bridges = tuple(name for name in seen.items("nics") if _kind(name, seen) == "bridge")
    return DiscoveredNode(
        member.folder,
        member.uid == 0,
        netdev,
        hca,
        gid_index,
        prefix,
        launcher=(seen.text(launchers.PROGRAM) or "") if ours else "",
        version=(seen.text(launchers.VERSION) or "") if ours else "",
        host=member.allocated_host,
        interface=interface,
        bridges=bridges,
    )


def _is_known(node: Node, *, alone: bool) -> bool:
    """Return whether the interface is known without inspection: from the fabric, or from the container's network.

    An interface that a cell names does not count: later cells have the same nodes. Nor does the loopback of plans for
    nodes of one host.
    """
    own_network = node.container is not None and node.container.network == "user"
    return own_network or node.hardware.fabric.netdev not in (None, *((LOOPBACK,) * alone))


def _prefix(node: Node, member: RemoteNode) -> str:
    """Return the prefix of a node's MPI as its ranks will report it, with links resolved."""
    if not (node.stack and node.stack.prefix):
        return ""
    try:
        answer = member.exec(("readlink", "-f", node.stack.prefix))
    except HetgpuError:
        return ""
    found = answer.stdout.decode(errors="replace").strip()
    return found if answer.returncode == 0 and _PREFIX.fullmatch(found) else ""


def roce(fabric: Fabric, seen: Environment) -> rdma.GidChoice | None:
    """Return the HCA, interface and GID for a RoCE job on the node, within the settings of the matrix."""
    layer = _link_layer(fabric)
    if layer != "Ethernet":
        return None
    ports = set(_ports(seen, layer))
    rows = tuple(row for row in rdma.table(seen.facts) if (row.hca, row.port) in ports)
    chosen = rdma.choose(rows, fabric.named, fabric.hca)
    return chosen if isinstance(chosen, rdma.GidChoice) else None


def infiniband(fabric: Fabric, seen: Environment) -> str:
    """Return the HCA of a node with one active InfiniBand port. With several, the library chooses better."""
    layer = _link_layer(fabric)
    if layer != "InfiniBand":
        return ""
    states = {port: seen.text(f"rdma.{port[0]}:{port[1]}.state") or "" for port in _ports(seen, layer)}
    active = [port for port, state in states.items() if "ACTIVE" in state]
    return _device(*active[0]) if len(active) == 1 else ""


def _link_layer(fabric: Fabric) -> str:
    return find("fabrics", fabric.kind, FabricKind).link_layer  # type: ignore[type-abstract]


def _ports(seen: Environment, layer: str) -> Iterator[tuple[str, int]]:
    for name, fact in seen.facts.items():
        match = _PORT.fullmatch(name)
        if match and fact.text == layer:
            yield match[1], int(match[2])


def _device(hca: str, port: int) -> str:
    """Return `mlx5_0`, or `mlx5_0:2` for an adapter with several ports."""
    return hca if port == 1 else f"{hca}:{port}"


def _interface(member: RemoteNode, seen: Environment, hosts: Sequence[str]) -> InterfaceChoice:
    """Return the interface by which others reach the node; `hosts` are its own and the others, () of a host alone.

    On Debian, a node may resolve its own name to loopback: then the route to another node decides. A tunnel with the
    default route is skipped, as it leads to any host.
    """
    hosts = [host.strip("[]") for host in hosts]
    try:
        routes = (member.read([ROUTES])[ROUTES] or b"").decode(errors="replace")
        found = _routing(member, hosts[: 1 + _OTHERS]) if hosts else routing.Routing()
    except HetgpuError:
        return InterfaceChoice()
    network = _network(seen, routes)
    if not hosts:
        return choose_interface(network) if len(network.interfaces) > 1 else InterfaceChoice()
    own, *others = hosts
    default = interface_of(routes, None)
    tunnel = default if _kind(default, seen) == "tunnel" else ""
    if chosen := routing.carrying(found, own) or routing.leading(found, others, routes, tunnel):
        return chosen
    if default and not tunnel:
        return InterfaceChoice(default, "carries the default route")
    chosen = choose_interface(network)
    return InterfaceChoice() if chosen.kind in ("loopback", "nothing") else chosen


def _routing(member: RemoteNode, hosts: Sequence[str]) -> routing.Routing:
    """Ask the kernel of the node how it reaches hosts."""
    answer = member.exec(("python3", f"{member.folder}/programs/{routing.ROUTES_PROGRAM}", *hosts))
    return routing.read(answer.stdout) if answer.returncode == 0 else routing.Routing()


def _network(seen: Environment, routes: str) -> Network:
    """Return the interfaces of a node that are up. Routes show whether one has an address."""
    addressed = routed_interfaces(routes)
    found = [
        Interface(
            name,
            seen.text(f"nics.{name}.state") not in ("down", "lowerlayerdown"),
            name in addressed,
            _kind(name, seen),
        )
        for name in seen.items("nics")
    ]
    return Network((Interface(LOOPBACK, kind="loopback"), *found), routes)


def _kind(name: str, seen: Environment) -> str:
    """Return whether an interface is a bridge or a tunnel, by the node's sysfs, else by its name."""
    kind = seen.text(f"nics.{name}.kind")
    return "tunnel" if kind in _TUNNELS else "bridge" if kind == "bridge" else kind_of(name)
