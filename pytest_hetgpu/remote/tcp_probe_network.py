"""The network of the TCP probe: addresses of the node's interface, a listening socket, the identity of the network.

Python 3.6 or later.
"""

import fcntl
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, Iterator, List, Tuple

from tcp_probe_streams import Fields, ProbeError

SIOCGIFADDR = 0x8915  # linux/sockios.h
LINK_LOCAL = 0x20  # a scope in /proc/net/if_inet6


def addresses(netdev: str) -> Iterator[Tuple[socket.AddressFamily, str]]:
    """Yield the addresses of an interface, IPv4 before IPv6, link-local ones last."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        found = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", netdev.encode()[:15]))
        yield socket.AF_INET, socket.inet_ntoa(found[20:24])
    rows: List[List[str]] = []
    with suppress(OSError):
        rows = [line.split() for line in Path("/proc/net/if_inet6").read_text().splitlines()]
    own = [row for row in rows if len(row) == 6 and row[5] == netdev]
    for row in sorted(own, key=lambda row: int(row[3], 16) == LINK_LOCAL):
        yield socket.AF_INET6, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0]))


def endpoint(family: int, address: str, port: int, netdev: str) -> Tuple[Any, ...]:
    """Return the argument of bind(2) and connect(2); a link-local address needs the number of the interface."""
    if family == socket.AF_INET:
        return address, port
    local = address.lower().startswith("fe80:")
    return address, port, 0, socket.if_nametoindex(netdev) if local and netdev else 0


def listen_on_node(request: Fields) -> socket.socket:
    """Listen on the node's address in the network. Raises ProbeError if it has none."""
    netdev, host = request["netdev"], request["host"]
    if netdev:
        candidates = [(family, endpoint(family, address, 0, netdev)) for family, address in addresses(netdev)]
        lacking = f"its interface {netdev} has no address"
        if not Path("/sys/class/net", netdev).exists():
            lacking = f"it has no interface {netdev}"
    else:
        try:
            found = socket.getaddrinfo(host, 0, 0, socket.SOCK_STREAM)
        except OSError as error:
            raise ProbeError(f"{host}: {error.strerror}") from None
        candidates = [(family, name) for family, _, _, _, name in found]
        lacking = f"{host} is no address of its own"
    for family, name in candidates:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.bind(name)
            listener.listen(64)
        except OSError as error:
            lacking = f"it cannot listen on {name[0]}: {error.strerror or error}"
            listener.close()
            continue
        return listener
    raise ProbeError(lacking)


def network_id() -> str:
    """Return a text that is equal for two processes in one network namespace of one kernel, which need no link."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/net")  # noqa: PTH115
    return ""
