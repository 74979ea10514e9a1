"""Network interfaces of a host, and the choice of the one that TCP of MPI is pinned to. Pure.

By default some libraries choose interfaces that lead nowhere. libfabric takes the bridge of a container engine. Its
MASQUERADE rule rewrites the source address of connections inside the host, and all ranks wait in MPI_Init.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

LOOPBACK = "lo"
FREE = "free"
"""Kind of a choice that the matrix leaves to the library, as it only excludes interfaces."""
ROUTES = "/proc/net/route"

_UP = 0x1  # RTF_UP of linux/route.h


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface.

    Attributes:
        running: up, with a carrier.
        ipv4: has an address that is not link-local.
        kind: loopback, bridge or tunnel; "" for an interface that may lead to other nodes.

    """

    name: str
    running: bool = True
    ipv4: bool = True
    kind: str = ""

    @property
    def lacks(self) -> str:
        """Return the reason why TCP cannot use it, "" if it can."""
        if not self.running:
            return "without a carrier"
        if not self.ipv4:
            return "without an IPv4 address"
        return f"a {self.kind}" if self.kind else ""


@dataclass(frozen=True, slots=True)
class Network:
    """The interfaces of a host, and its `/proc/net/route`."""

    interfaces: tuple[Interface, ...] = ()
    routes: str = ""


@dataclass(frozen=True, slots=True)
class InterfaceChoice:
    """The interface that TCP is pinned to, with the reason.

    Attributes:
        name: "" if there is no interface, or none is known yet.
        kind: "bridge" (UCX uses one only if configured), "loopback" (the host has nothing else), "nothing" (no
            interface is up), FREE (the matrix only excludes interfaces), or "".

    """

    name: str = ""
    why: str = "nothing is known of the interfaces"
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.name or 'none is pinned'} ({self.why})"


def choose_interface(network: Network) -> InterfaceChoice:
    """Choose the interface for a job on one host: that of the default route, another, loopback, or none."""
    there = {one.name: one for one in network.interfaces}
    default = there.get(interface_of(network.routes, None))
    usable = [one.name for one in network.interfaces if not one.lacks]
    if default and not default.lacks:
        return InterfaceChoice(default.name, "carries the default route")
    if usable:
        route = f"the default route is on {default.name}, {default.lacks}" if default else "there is no default route"
        return InterfaceChoice(usable[0], f"is up with a carrier and an IPv4 address; {route}")
    if default and default.running and default.ipv4 and default.kind == "bridge":
        return InterfaceChoice(default.name, "a bridge that carries the default route", "bridge")
    others = ", ".join(f"{one.name} {one.lacks}" for one in network.interfaces if one.kind != "loopback")
    why = f"no other interface can be used: {others or 'there is none'}"
    loopback = next((one.name for one in network.interfaces if one.kind == "loopback" and one.running), "")
    return InterfaceChoice(loopback, why, "loopback" if loopback else "nothing")


def interface_of(routes: str, address: str | None) -> str:
    """Return the interface that carries a node's address, by the node's /proc/net/route; "" if there is none.

    For None, or an address that is not the node's own (translated by NAT), return the interface of the default route.
    """
    number = int(ipaddress.IPv4Address(address)) if address else 0
    found = [route for route in _routes(routes) if number & route[1] == route[0]]
    # The narrowest network wins, then the lowest metric.
    return max(found, key=lambda route: (route[1], -route[2]), default=(0, 0, 0, ""))[3]


def routed_interfaces(routes: str) -> frozenset[str]:
    """Return the interfaces with an IPv4 route. Each address brings a route to its network."""
    return frozenset(route[3] for route in _routes(routes))


def _routes(text: str) -> Iterator[tuple[int, int, int, str]]:
    """Yield network, mask, metric and interface of each active route.

    The file holds addresses as little-endian words.
    """
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
