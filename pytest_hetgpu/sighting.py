"""What a plan needs to know of a node that is there: its folder, its user, and the network that it really has."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from pytest_hetgpu.accounting import Environment
from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.fabrics.base import FabricKind
from pytest_hetgpu.inventory import HERE
from pytest_hetgpu.model import Fabric, Node
from pytest_hetgpu.placing import Sight
from pytest_hetgpu.probes.rdma import Choice, choose, table
from pytest_hetgpu.registry import find
from pytest_hetgpu.runtimes.base import Member

ROUTES = "/proc/net/route"

_PORT = re.compile(r"rdma\.(.+):(\d+)\.link_layer")
_PREFIX = re.compile(r"/[A-Za-z0-9_./+@=~-]*")
# A node may say anything: only what can be a name goes into command lines.
_DEVICE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+~-]*")
_UP = 0x1  # RTF_UP of linux/route.h


def of(node: Node, member: Member, seen: Environment) -> Sight:
    """The sight of a node; what cannot be told of its network is left open. Never raises for a node that is lost."""
    fabric = node.hardware.fabric
    chosen = roce(fabric, seen)
    if chosen:
        hca, netdev, gid_index = _device(chosen.hca, chosen.port), chosen.netdev, chosen.gid_index
    else:
        hca, netdev, gid_index = infiniband(fabric, seen), "", None
    own_network = node.container is not None and node.container.network == "user"
    if not (netdev or fabric.netdev or own_network):
        netdev = _interface(node.host, member)
    netdev, hca = (name if _DEVICE.fullmatch(name) else "" for name in (netdev, hca))
    return Sight(member.folder, member.uid == 0, netdev, hca, gid_index, _prefix(node, member), member.given)


def _prefix(node: Node, member: Member) -> str:
    """The prefix of a node's MPI as its ranks will report it: module systems and clusters like links."""
    if not (node.stack and node.stack.prefix):
        return ""
    try:
        answer = member.ask(("readlink", "-f", node.stack.prefix))
    except HetgpuError:
        return ""
    found = answer.stdout.decode(errors="replace").strip()
    return found if answer.returncode == 0 and _PREFIX.fullmatch(found) else ""


def roce(fabric: Fabric, seen: Environment) -> Choice | None:
    """The HCA, interface and GID that a RoCE job on the node must name, within what the matrix says of them."""
    layer = _link_layer(fabric)
    if layer != "Ethernet":
        return None
    ports = set(_ports(seen, layer))
    rows = tuple(row for row in table(seen.facts) if (row.hca, row.port) in ports)
    chosen = choose(rows, fabric.netdev, fabric.hca)
    return chosen if isinstance(chosen, Choice) else None


def infiniband(fabric: Fabric, seen: Environment) -> str:
    """The HCA of a node that has one active port of InfiniBand; of several libraries choose better than a rule."""
    layer = _link_layer(fabric)
    if layer != "InfiniBand":
        return ""
    states = {port: seen.text(f"rdma.{port[0]}:{port[1]}.state") or "" for port in _ports(seen, layer)}
    active = [port for port, state in states.items() if "ACTIVE" in state]
    return _device(*active[0]) if len(active) == 1 else ""


def interface_of(routes: str, address: str | None) -> str:
    """The interface that carries a node's address, by the node's /proc/net/route; "" where none does.

    An address that is none of the node's own (one that is translated on the way), or None, gives the interface of the
    default route.
    """
    number = int(ipaddress.IPv4Address(address)) if address else 0
    found = [route for route in _routes(routes) if number & route[1] == route[0]]
    # The narrowest network, then the cheapest way.
    return max(found, key=lambda route: (route[1], -route[2]), default=(0, 0, 0, ""))[3]


def _link_layer(fabric: Fabric) -> str:
    return find("fabrics", fabric.kind, FabricKind).link_layer  # type: ignore[type-abstract]


def _ports(seen: Environment, layer: str) -> Iterator[tuple[str, int]]:
    for name, fact in seen.facts.items():
        match = _PORT.fullmatch(name)
        if match and fact.text == layer:
            yield match[1], int(match[2])


def _device(hca: str, port: int) -> str:
    """`mlx5_0`, or `mlx5_0:2` of an adapter with several ports."""
    return hca if port == 1 else f"{hca}:{port}"


def _interface(host: str, member: Member) -> str:
    """Loopback is nothing that a plan must name: what is on one host finds its ranks there."""
    if host in HERE:
        return ""
    try:
        routes = member.read([ROUTES])[ROUTES] or b""
        return interface_of(routes.decode(errors="replace"), _ipv4(host, member))
    except HetgpuError:
        return ""


def _ipv4(host: str, member: Member) -> str | None:
    """A node's address as it is itself told of it; None for a name that leads it to loopback or nowhere."""
    said = host
    if not re.fullmatch(r"[\d.]+|.*:.*", host):
        answer = member.ask(("getent", "ahostsv4", host))
        said = answer.stdout.decode(errors="replace").partition(" ")[0]
    try:
        address = ipaddress.IPv4Address(said)
    except ValueError:
        return None
    return None if address.is_loopback else str(address)


def _routes(text: str) -> Iterator[tuple[int, int, int, str]]:
    """Network, mask, metric and interface of each route that is up; in the file addresses are little-endian words."""
    for line in text.splitlines()[1:]:
        fields = line.split()
        try:
            network, flags, mask = (int(fields[place], 16) for place in (1, 3, 7))
            metric = int(fields[6])
        except (ValueError, IndexError):
            continue
        if flags & _UP and max(network, mask) < 1 << 32 and min(network, mask) >= 0:
            yield _swapped(network), _swapped(mask), metric, fields[0]


def _swapped(word: int) -> int:
    return int.from_bytes(word.to_bytes(4, "little"), "big")
