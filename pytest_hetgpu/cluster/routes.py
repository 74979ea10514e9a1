"""Routes of a node to other hosts, and the interface that follows from them. Pure: `remote/routes.py` asks."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_hetgpu.model.interfaces import LOOPBACK, InterfaceChoice, interface_of

ROUTES_PROGRAM = "routes.py"
"""The program that asks the kernel of a node, among the programs of ranks."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Addresses of a node by interface; per host its addresses, each with the node's source address ("": no route)."""

    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hosts: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def owner(self, address: str) -> str:
        """Return the interface that has an address; "" for one of another host, and for one of loopback."""
        names = (name for name, addresses in self.addresses.items() if address in addresses and name != LOOPBACK)
        return next(names, "")


def read(text: bytes) -> Routing:
    """Parse the output of the program, without invalid addresses; nothing if it is unreadable."""
    try:
        answer = json.loads(text)
        addresses = {str(name): tuple(_addresses(each)) for name, each in answer["addresses"].items()}
        hosts = {str(name): tuple(_pairs(each)) for name, each in answer["hosts"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Routing()
    return Routing(addresses, hosts)


def _addresses(words: Iterable[Any]) -> Iterator[str]:
    for word in words:
        if isinstance(word, str):
            try:
                yield str(ipaddress.ip_address(word))
            except ValueError:
                continue


def _pairs(rows: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for address, source in rows:
        for one in _addresses([address]):
            yield one, next(_addresses([source]), "")


def carrying(routing: Routing, host: str) -> InterfaceChoice | None:
    """Choose the interface that has the address by which others reach the node; None if no interface has it."""
    for address, _ in routing.hosts.get(host, ()):
        if name := routing.owner(address):
            return InterfaceChoice(name, f"carries its address {address}")
    return None


def leading(routing: Routing, others: Iterable[str], routes: str, avoid: str = "") -> InterfaceChoice | None:
    """Choose the interface of the route to another node; None if no route is known, or all lead over `avoid`.

    A source address may be loopback's, on hosts that announce it to their routers: there the routes decide.
    """
    for host in others:
        for address, source in routing.hosts.get(host, ()):
            name = routing.owner(source) or (_by_routes(routes, address) if source else "")
            if name and name not in (LOOPBACK, avoid):
                return InterfaceChoice(name, f"carries the route to {host}" + f" at {address}" * (address != host))
    return None


def _by_routes(routes: str, address: str) -> str:
    there = ipaddress.ip_address(address)
    return interface_of(routes, address) if there.version == 4 and not there.is_loopback else ""
