"""Prints how the kernel of this node reaches hosts, as one JSON object. Stdlib only, Python 3.6+.

    python3 routes.py HOST...

`addresses` holds the addresses of each interface. `hosts` holds, per host, its addresses as this node resolves them.
Beside each is the source address that the kernel takes to reach it, or "" if there is no route. No packet is sent.
"""

import array
import fcntl
import json
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Dict, List, Tuple

SIOCGIFCONF = 0x8912  # linux/sockios.h
MOST = 64 * 1024  # bytes of the answer
ROW = 40 if struct.calcsize("P") == 8 else 32  # struct ifreq of linux/if.h
DISCARD = 9  # a port to which nothing is sent


def main() -> None:
    """Answer for the hosts that the arguments name."""
    print(json.dumps({"addresses": addresses(), "hosts": {host: resolve(host) for host in sys.argv[1:]}}))


def addresses() -> Dict[str, List[str]]:
    """Return the addresses of each interface, IPv4 before IPv6."""
    found = {}  # type: Dict[str, List[str]]
    for name, address in (*ipv4(), *ipv6()):
        found.setdefault(name, []).append(address)
    return found


def ipv4() -> List[Tuple[str, str]]:
    """Return interface and IPv4 address pairs; an interface with several addresses has several rows."""
    rows = array.array("B", bytes(MOST))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), SIOCGIFCONF, struct.pack("iP", MOST, rows.buffer_info()[0]))
        except OSError:
            return []
    data = rows.tobytes()[: struct.unpack("iP", answer)[0]]
    each = [data[start : start + ROW] for start in range(0, len(data), ROW)]
    return [(interface(row[:16]), socket.inet_ntoa(row[20:24])) for row in each]


def interface(label: bytes) -> str:
    """Return the interface of an address's label, which may have a number: eth0:1."""
    return label.partition(b"\0")[0].decode("utf-8", "replace").partition(":")[0]


def ipv6() -> List[Tuple[str, str]]:
    """Return interface and IPv6 address pairs."""
    lines = []  # type: List[str]
    with suppress(OSError):
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    rows = [line.split() for line in lines]
    return [(row[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0]))) for row in rows if len(row) == 6]


def resolve(host: str) -> List[Tuple[str, str]]:
    """Return the addresses of a host, each with the source address to it; [] if the name does not resolve."""
    try:
        rows = socket.getaddrinfo(host, DISCARD, 0, socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return []
    return [(str(row[4][0]).partition("%")[0], source_address(row[0], row[4])) for row in rows]


def source_address(family: int, address: Tuple[object, ...]) -> str:
    """Return our end of a connected UDP socket: connect(2) applies the routing table and its rules."""
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0]).partition("%")[0]
    return ""


if __name__ == "__main__":
    main()
